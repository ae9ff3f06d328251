//! What can be seen: workspaces, the timeline, snapshots, differences, lines in history.

use std::time::{Duration, Instant};

use chronicle_core::{DiffRequest, LogQuery, SCHEMA, Seq, TimelineQuery};
use http::StatusCode;

use crate::answer::Answer;
use crate::call::Call;
use crate::problem::Problem;
use crate::shapes::{GrepPage, SessionView, SignIn, SnapshotPage, WorkspaceItem, Workspaces};

/// How many entries a page has where nothing is said.
const PAGE: usize = 100;
/// How many snapshots.
const SNAPSHOTS_PAGE: usize = 20;
/// How many changed paths.
const CHANGES_PAGE: usize = 500;
/// How long a search may take.
const SEARCH_PATIENCE: Duration = Duration::from_secs(8);

pub(crate) fn workspaces(call: &Call<'_>) -> Result<Answer, Problem> {
    let here = call.site.here();
    let all = call.site.home().workspaces()?;
    let item = |(id, root): (chronicle_core::WorkspaceId, std::path::PathBuf)| WorkspaceItem {
        id: id.hex(),
        here: here == Some(id),
        present: root.is_dir(),
        root: chronicle_core::escape(root.as_os_str().as_encoded_bytes()).into_owned(),
    };
    let workspaces = all.into_iter().map(item).collect();
    Answer::json(&Workspaces { schema: SCHEMA, workspaces })
}

pub(crate) fn who(call: &Call<'_>) -> Result<Answer, Problem> {
    let caller = call.caller.ok_or_else(Problem::unknown_caller)?;
    Answer::json(&SessionView { schema: SCHEMA, right: caller.right })
}

pub(crate) fn sign_in(call: &Call<'_>) -> Result<Answer, Problem> {
    let given: SignIn = call.read()?;
    let failed = |error: std::io::Error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "io", error.to_string())
    };
    match call.site.access().sign_in(&given.code).map_err(failed)? {
        Some((cookie, right)) => {
            let Answer::Json(body) = Answer::json(&SessionView { schema: SCHEMA, right })? else {
                return Ok(Answer::Nothing);
            };
            Ok(Answer::Cookie(cookie, body))
        }
        None => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "This link was used before, or is too old",
        )
        .hinted("Start chronicle web again, or paste the token that it named")),
    }
}

pub(crate) fn sign_out(call: &Call<'_>) -> Result<Answer, Problem> {
    Ok(Answer::Cookie(call.site.access().sign_out(call.headers), Vec::new()))
}

pub(crate) fn document(_: &Call<'_>) -> Result<Answer, Problem> {
    Answer::json(&crate::openapi::document())
}

pub(crate) fn status(call: &Call<'_>) -> Result<Answer, Problem> {
    Answer::json(&call.open()?.status()?)
}

pub(crate) fn timeline(call: &Call<'_>) -> Result<Answer, Problem> {
    let workspace = call.open()?;
    let query = TimelineQuery {
        before: call.seq("before"),
        session: call.text("session").map(str::to_owned),
        tool: call.text("tool").map(str::to_owned),
        path: call.maybe_path(&workspace, "path", "path_b64")?,
        limit: call.count("limit", PAGE),
    };
    Answer::json(&workspace.timeline(&query)?)
}

pub(crate) fn turn(call: &Call<'_>) -> Result<Answer, Problem> {
    let number = call.needed("turn")?;
    let number: u64 =
        number.parse().map_err(|_| Problem::usage("A turn is named by its number"))?;
    let workspace = call.open()?;
    let start = workspace.position_of(&format!("before:turn:{number}"))?;
    let query =
        TimelineQuery { before: Some(Seq(start.0 + 1)), limit: 1, ..TimelineQuery::default() };
    match workspace.timeline(&query)?.entries.pop() {
        Some(entry) if entry.turn.as_ref().is_some_and(|turn| turn.number == number) => {
            Answer::json(&entry)
        }
        _ => Err(chronicle_core::Error::UnknownTarget(format!("turn:{number}")).into()),
    }
}

pub(crate) fn snapshots(call: &Call<'_>) -> Result<Answer, Problem> {
    let workspace = call.open()?;
    let limit = call.count("limit", SNAPSHOTS_PAGE);
    let query = LogQuery {
        turn: call.number("turn"),
        session: call.text("session").map(str::to_owned),
        path: call.maybe_path(&workspace, "path", "path_b64")?,
        limit: Some(limit),
        before: call.seq("before"),
    };
    let snapshots = workspace.log(&query)?;
    let full = snapshots.len() == limit;
    let next = snapshots.last().map(|last| last.seq).filter(|seq| full && *seq > 1);
    Answer::json(&SnapshotPage { schema: SCHEMA, snapshots, next })
}

pub(crate) fn snapshot(call: &Call<'_>) -> Result<Answer, Problem> {
    Answer::json(&call.open()?.show(call.needed("snapshot")?)?)
}

fn compared(call: &Call<'_>) -> Result<DiffRequest, Problem> {
    let text = |name| call.text(name).map(str::to_owned);
    let request = DiffRequest {
        from: text("from"),
        to: text("to"),
        of: text("of"),
        ..DiffRequest::default()
    };
    if request.of.is_some() && (request.from.is_some() || request.to.is_some()) {
        return Err(Problem::usage("of and from or to exclude one another"));
    }
    Ok(request)
}

pub(crate) fn diff(call: &Call<'_>) -> Result<Answer, Problem> {
    let mut workspace = call.open()?;
    let request = DiffRequest {
        paths: call.maybe_path(&workspace, "path", "path_b64")?.into_iter().collect(),
        after: call.maybe_path(&workspace, "after", "after_b64")?,
        patch: call.truth("patch"),
        most_changes: Some(call.count("limit", CHANGES_PAGE)),
        most_patch_bytes: Some(4 << 20),
        ..compared(call)?
    };
    Answer::json(&workspace.diff(&request)?)
}

pub(crate) fn file_diff(call: &Call<'_>) -> Result<Answer, Problem> {
    let mut workspace = call.open()?;
    let path = call.path(&workspace)?;
    Answer::json(&workspace.file_diff(&compared(call)?, &path)?)
}

pub(crate) fn grep(call: &Call<'_>) -> Result<Answer, Problem> {
    let workspace = call.open()?;
    let given = call.needed("pattern")?;
    let pattern = match call.truth("literal") {
        true => escape_pattern(given),
        false => given.to_owned(),
    };
    let pattern = if call.truth("any_case") { format!("(?i){pattern}") } else { pattern };
    let end = Instant::now() + SEARCH_PATIENCE;
    let impatient = || call.is_gone() || Instant::now() > end;
    let most = call.count("limit", PAGE);
    let (matches, more) = workspace.grep_until(&pattern, call.text("glob"), most, &impatient)?;
    Answer::json(&GrepPage { schema: SCHEMA, matches, more })
}

/// Text as a pattern that means only itself.
fn escape_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if !letter.is_alphanumeric()
            && letter.is_ascii()
            && !letter.is_ascii_control()
            && letter != ' '
            && letter != '<'
            && letter != '>'
        {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}
