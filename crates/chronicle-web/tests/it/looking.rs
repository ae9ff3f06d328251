//! What can be seen.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use crate::support::World;

#[test]
fn the_timeline_is_whole_page_by_page_and_filters_fit() {
    let world = World::new();
    for number in 1..=7 {
        let (path, content) = (format!("d/f{number}.txt"), format!("{number}\n"));
        world.turn(
            if number % 2 == 0 { "even" } else { "odd" },
            &format!("turn {number}"),
            &[(&path, &content)],
        );
    }
    world.write("a.txt", "by hand\n");
    world.open().settle().unwrap();
    let all = world.get("timeline?limit=500").ok();
    let seqs = |page: &serde_json::Value| -> Vec<u64> {
        page["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["seq"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(all["next"], serde_json::Value::Null);
    assert_eq!(all["entries"][0]["authors"][0], "person");
    assert_eq!(all["entries"][1]["turn"]["prompt"], "turn 7");
    assert_eq!(all["entries"][1]["created"], 1);
    let (mut paged, mut before) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("timeline?limit=2{before}")).ok();
        paged.extend(seqs(&page));
        let Some(next) = page["next"].as_u64() else { break };
        before = format!("&before={next}");
    }
    assert_eq!(paged, seqs(&all));
    assert_eq!(seqs(&world.get("timeline?session=even").ok()).len(), 3);
    assert_eq!(seqs(&world.get("timeline?path=d/f3.txt").ok()).len(), 1);
    assert_eq!(seqs(&world.get("timeline?path=d").ok()).len(), 7);
    assert!(seqs(&world.get("timeline?tool=none").ok()).is_empty());
    let turn = world.get("turns/3").ok();
    assert_eq!((&turn["turn"]["number"], &turn["created"]), (&3.into(), &1.into()));
    world.get("turns/99").refused(404, "unknown_target");
    assert_eq!(world.get("snapshots?turn=3").ok()["snapshots"].as_array().unwrap().len(), 1);
}

#[test]
fn two_sessions_at_once_are_counted_each_for_itself_on_every_page() {
    let world = World::new();
    let request = |session: &str| chronicle_core::TurnRequest {
        session: Some(session.to_owned()),
        ..Default::default()
    };
    world.open().turn_start(&request("slow")).unwrap();
    world.write("slow.txt", "1\n");
    world.open().settle().unwrap();
    world.turn("quick", "between", &[("quick.txt", "1\n")]);
    world.write("slow2.txt", "2\n");
    world.open().turn_end(&request("slow")).unwrap();
    let all = world.get("timeline").ok()["entries"].clone();
    let slow = all.as_array().unwrap().iter().find(|entry| entry["session"] == "slow").unwrap();
    assert_eq!((&slow["open"], &slow["partial"]), (&false.into(), &false.into()));
    assert!(slow["created"].as_u64().unwrap() >= 1, "{slow}");
    let (mut paged, mut before) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("timeline?limit=1{before}")).ok();
        paged.extend(page["entries"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_u64() else { break };
        before = format!("&before={next}");
    }
    assert_eq!(&paged, all.as_array().unwrap(), "a page counts what lies behind it, too");
}

#[test]
fn a_turn_shows_what_it_did_and_only_that() {
    let world = World::new();
    let number = world.turn("s", "p", &[("a.txt", "one\n2\nthree\n"), ("new.txt", "new\n")]);
    world.write("b.txt", "by hand\n");
    world.open().settle().unwrap();
    let diff = world.get(&format!("diff?of=turn:{number}")).ok();
    assert_eq!(diff["files_changed"], 2);
    assert_eq!(diff["insertions"], 2);
    let paged = world.get(&format!("diff?of=turn:{number}&limit=1")).ok();
    assert_eq!((&paged["partial"], &paged["changes"][0]["path"]), (&true.into(), &"a.txt".into()));
    let rest = world.get(&format!("diff?of=turn:{number}&limit=1&after=a.txt")).ok();
    assert_eq!((&rest["partial"], &rest["changes"][0]["path"]), (&false.into(), &"new.txt".into()));
    let file = world.get(&format!("diff/file?of=turn:{number}&path=a.txt")).ok();
    let lines = file["hunks"][0]["lines"].as_array().unwrap();
    assert_eq!(lines, &[" one", "-two", "+2", " three"]);
    let before = file["before_at"].as_str().unwrap();
    assert_eq!(world.get(&format!("content?path=a.txt&at={before}")).body, b"one\ntwo\nthree\n");
    world.get(&format!("diff?of=turn:{number}&from=start")).refused(400, "usage");
    assert_eq!(world.get("diff?from=start&path=b.txt").ok()["files_changed"], 1);
}

#[test]
fn a_file_is_seen_through_time() {
    let world = World::new();
    world.turn("s", "p", &[("a.txt", "one\n2\nthree\n")]);
    world.turn("s", "q", &[("a.txt", "one\n2\nthree\nfour\n")]);
    let history = world.get("history?path=a.txt&limit=2").ok();
    assert_eq!(history["more"], true);
    assert_eq!(history["iterations"][0]["turn"], 2);
    let older =
        world.get(&format!("history?path=a.txt&before={}", history["iterations"][1]["seq"])).ok();
    assert_eq!(older["iterations"].as_array().unwrap().len(), 1);
    let blame = world.get("blame?path=a.txt").ok();
    let turns: Vec<_> =
        blame["runs"].as_array().unwrap().iter().map(|run| run["turn"].as_u64()).collect();
    assert_eq!(turns, [None, Some(1), None, Some(2)]);
    let text = world.get("text?path=a.txt&at=turn:1").ok();
    assert_eq!(text["lines"].as_array().unwrap().len(), 3);
    let tree = world.get("tree").ok();
    assert_eq!(tree["entries"].as_array().unwrap().len(), 3);
    assert_eq!(world.get("tree?limit=1").ok()["more"], true);
    let found = world.get("grep?pattern=two").ok();
    assert_eq!(
        (&found["matches"][0]["present"], &found["matches"][0]["removed_by_turn"]),
        (&false.into(), &1.into())
    );
    assert_eq!(
        world.get("grep?pattern=(&literal=true").ok()["matches"].as_array().unwrap().len(),
        0
    );
    world.get("grep?pattern=(").refused(400, "usage");
    assert_eq!(world.get("health").ok()["status"]["protected_files"], 3);
}

#[test]
fn content_comes_whole_or_in_part_and_never_as_a_page() {
    let world = World::new();
    let large: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    world.turn("s", "p", &[("large.txt", &large), ("x.html", "<script>1</script>")]);
    let whole = world.get("content?path=large.txt");
    assert_eq!(whole.body, large.as_bytes());
    assert_eq!(whole.header("content-type").as_deref(), Some("application/octet-stream"));
    assert_eq!(whole.header("content-disposition").as_deref(), Some("attachment"));
    let bearer = format!("Bearer {}", world.token(&world.ready.look_token));
    let part = |range: &str| {
        let path = format!("/api/v1/workspaces/{}/content?path=large.txt", world.id);
        world.ask("GET", &path, &[("Authorization", &bearer), ("Range", range)], "")
    };
    let middle = part("bytes=100000-100009");
    assert_eq!((middle.status, &middle.body[..]), (206, &large.as_bytes()[100_000..100_010]));
    assert_eq!(part("bytes=-4").body, &large.as_bytes()[large.len() - 4..]);
    part("bytes=99999999-").refused(416, "usage");
    assert!(
        world
            .get("content?path=x.html")
            .header("content-security-policy")
            .unwrap()
            .contains("sandbox")
    );
}

#[test]
fn secrets_are_in_no_answer() {
    let world = World::new();
    world.turn("s", "p", &[(".env", "TOKEN=changed-hunter2\n")]);
    for path in ["content?path=.env", "text?path=.env", "blame?path=.env"] {
        world.get(path).refused(403, "secret");
    }
    for path in [
        "diff/file?of=turn:1&path=.env",
        "diff?of=turn:1&patch=true",
        "grep?pattern=hunter2",
        "history?path=.env",
        "timeline",
        "snapshots",
        "health",
    ] {
        let got = world.get(path);
        assert_eq!(got.status, 200, "{path}");
        assert!(!String::from_utf8_lossy(&got.body).contains("hunter2"), "{path}");
    }
}

#[test]
fn names_that_are_no_text_are_reached_by_their_bytes() {
    let world = World::new();
    let name = OsStr::from_bytes(b"bad\xff\n<b>.txt");
    std::fs::write(world.directory().join(name), "odd\n").unwrap();
    world.open().settle().unwrap();
    let tree = world.get("tree").ok();
    let entry = tree["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["path_b64"].is_string())
        .unwrap()
        .clone();
    let exact = entry["path_b64"].as_str().unwrap().replace('+', "%2B").replace('=', "%3D");
    assert_eq!(world.get(&format!("content?path_b64={exact}")).body, b"odd\n");
    assert_eq!(world.get(&format!("text?path_b64={exact}")).ok()["lines"][0], "odd");
    world.get("text?path_b64=!").refused(400, "usage");
}

#[test]
fn new_records_are_told_within_a_second() {
    let world = World::new();
    let bearer = format!("Bearer {}", world.token(&world.ready.look_token));
    let mut stream = TcpStream::connect(world.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request = format!(
        "GET /api/v1/workspaces/{}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: {bearer}\r\n\r\n",
        world.id,
        world.address()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream)
        .lines()
        .map(Result::unwrap)
        .filter(|line| line.starts_with("data: "));
    let head = |line: String| {
        serde_json::from_str::<serde_json::Value>(&line["data: ".len()..]).unwrap()["head_seq"]
            .as_u64()
            .unwrap()
    };
    let first = head(lines.next().unwrap());
    world.turn("s", "live", &[("live.txt", "1\n")]);
    let begun = Instant::now();
    assert!(head(lines.next().unwrap()) > first);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}
