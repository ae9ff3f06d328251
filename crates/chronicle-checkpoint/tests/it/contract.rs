//! What every driver must do, on a part of its kind: ten lines per driver.

use std::path::Path;

use chronicle_checkpoint::{
    Captured, Contents, Deadline, Driver, End, Part, PartKind, Restoration, Site, drivers,
};
use chronicle_core::{LocalStore, Workspace};
use chronicle_testing::mounted::Mounted;
use chronicle_testing::shared::skip;

use crate::scene::{DECLARED, Scene};

/// A part that can be changed and compared.
pub struct Subject<'s> {
    pub workspace: &'s Workspace,
    pub part: Part,
    /// Changes the part.
    pub change: &'s dyn Fn(),
    /// What the part is, as text.
    pub state: &'s dyn Fn() -> String,
}

fn capture(
    driver: &dyn Driver,
    subject: &Subject<'_>,
    store: &LocalStore,
    place: &Path,
    id: &str,
) -> Captured {
    let intake = subject.workspace.checkpoint_intake(store).unwrap();
    let mut contents = Contents::taking_in(store, intake);
    let captured = {
        let site = Site { contents: &contents, place, id, previous: None };
        let mut capture = driver.prepare(&subject.part, &site).unwrap();
        let limit = Deadline::after(std::time::Duration::from_secs(60));
        capture.freeze(&limit).unwrap();
        capture.boundary(&limit).unwrap();
        capture.thaw().unwrap();
        capture.thaw().unwrap();
        // Bytes may follow: what happens now is after the boundary.
        capture.capture().unwrap()
    };
    contents.finish().unwrap();
    captured
}

/// The suite: capture, verify, restore beside, swap, back, again, and clear.
pub fn check(driver: &dyn Driver, subject: &Subject<'_>) {
    let place = subject.workspace.checkpoint_place().unwrap();
    let store = subject.workspace.content_store().unwrap();
    let first = (subject.state)();
    let captured = capture(driver, subject, &store, &place, "c1");
    assert_eq!((captured.driver.as_str(), captured.version), (driver.name(), driver.version()));
    (subject.change)();
    let second = (subject.state)();
    assert_ne!(first, second, "the change of a subject must show");
    let present = capture(driver, subject, &store, &place, "c2");
    assert_ne!(captured.digest, present.digest);

    let contents = Contents::read_only(&store);
    let site = Site { contents: &contents, place: &place, id: "r1", previous: None };
    driver.verify(&captured, &site).unwrap();
    let it =
        Restoration { part: &subject.part, captured: &captured, present: Some(&present), site };
    assert_eq!(driver.gate(&it).unwrap(), []);
    driver.halt(&it).unwrap();
    // Given up before the commit point, nothing is left.
    let staged = driver.restore(&it).unwrap();
    assert_eq!((subject.state)(), second, "restore changes nothing that people see");
    assert_eq!(driver.clear(&it, &staged, End::Old).unwrap(), []);
    // Every step may be done twice, and taken back from anywhere.
    let staged = driver.restore(&it).unwrap();
    driver.swap_back(&it, &staged).unwrap();
    assert_eq!((subject.state)(), second);
    for _ in 0..2 {
        driver.swap(&it, &staged).unwrap();
        driver.swap(&it, &staged).unwrap();
        driver.check(&it).unwrap();
        driver.swap_back(&it, &staged).unwrap();
        driver.swap_back(&it, &staged).unwrap();
    }
    assert_eq!((subject.state)(), second);
    driver.swap(&it, &staged).unwrap();
    driver.check(&it).unwrap();
    assert_eq!(driver.clear(&it, &staged, End::New).unwrap(), []);
    driver.resume(&it).unwrap();
    assert_eq!((subject.state)(), first);
    driver.discard(&present, &site).unwrap();
    driver.discard(&present, &site).unwrap();
}

fn universal(
    kind: PartKind,
    path: &str,
    change: &dyn Fn(&Scene),
    state: &dyn Fn(&Scene) -> String,
) {
    let scene = Scene::new(DECLARED);
    let workspace = scene.open();
    let part = Part::new("subject", kind, &scene.root().join(path));
    let (change, state) = (|| change(&scene), || state(&scene));
    let subject = Subject { workspace: &workspace, part, change: &change, state: &state };
    check(drivers::named("universal").unwrap().as_ref(), &subject);
}

/// A directory on a real file system of this kind.
fn on(kind: &str, driver: &str) {
    let mounted = match Mounted::new(kind, 1 << 30) {
        Ok(mounted) => mounted,
        Err(why) => return skip(&format!("contract::{driver}_keeps_the_contract"), &why),
    };
    let (scene, data) = (Scene::new(DECLARED), mounted.at().join("data"));
    match driver {
        "btrfs" => drivers::btrfs::make_data_directory(&data).unwrap(),
        _ => std::fs::create_dir(&data).unwrap(),
    }
    let write = |text: &str| std::fs::write(data.join("file"), text).unwrap();
    write("one");
    let state = || std::fs::read_to_string(data.join("file")).unwrap();
    let change = || write("another");
    let (workspace, part) = (scene.open(), Part::new("subject", PartKind::Directory, &data));
    let subject = Subject { workspace: &workspace, part, change: &change, state: &state };
    check(drivers::named(driver).unwrap().as_ref(), &subject);
}

#[test]
fn btrfs_keeps_the_contract() {
    on("btrfs", "btrfs");
}

#[test]
fn reflink_keeps_the_contract() {
    on("xfs", "reflink");
}

#[test]
fn universal_keeps_the_contract_with_directories() {
    universal(PartKind::Directory, "uploads", &Scene::wreck, &|scene| {
        let uploads = scene.root().join("uploads");
        format!(
            "{:?} {:?}",
            std::fs::read(uploads.join("deep/file")).ok(),
            uploads.join("other").exists()
        )
    });
}

#[test]
fn universal_keeps_the_contract_with_sqlite() {
    universal(PartKind::Sqlite, "app.db", &Scene::wreck, &Scene::rows);
}
