//! Every operation of the API, as a table.

use std::sync::LazyLock;

use chronicle_core::{
    BlameView, Diff, FileDiff, PlanView, RewindReport, SettleReport, SnapshotMetadata, Status,
    TimelineEntry, TimelinePage, TreeView, TurnView,
};
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::access::Right;
use crate::route::{Gives, Is, Param, Route, Run, Shape};
use crate::shapes::{
    GrepPage, Health, HistoryPage, PlanBody, SessionView, SignIn, SnapshotBody, SnapshotPage,
    TextView, TurnBody, Verification, VerifyBody, Workspaces,
};
use crate::{files, health, looking, recording, taking_back};

/// A record can be no later: the number must fit where it is kept.
const SEQ_MOST: u64 = i64::MAX.cast_unsigned();

const fn text(name: &'static str, words: &'static str) -> Param {
    Param { name, is: Is::Text, words }
}

const fn number(name: &'static str, least: u64, most: u64, words: &'static str) -> Param {
    Param { name, is: Is::Number(least, most), words }
}

const fn truth(name: &'static str, words: &'static str) -> Param {
    Param { name, is: Is::Truth, words }
}

const PATH: Param = text("path", "A path of the workspace");
const PATH_B64: Param = text("path_b64", "The same as exact bytes in base64");
const AT: Param = text("at", "The moment, as a target; the last record where nothing is said");
const FROM: Param =
    text("from", "The moment it starts from; by default the start of the last turn");
const TO: Param = text("to", "The moment it ends at; by default now");
const OF: Param = text("of", "Instead of two moments: what this turn (turn:N) or snapshot did");
const BEFORE: Param =
    number("before", 1, SEQ_MOST, "Where the page begins: `next` of the one before");
const SESSION: Param = text("session", "Of this session only");

const fn limit(most: u64) -> Param {
    number("limit", 1, most, "How many at most")
}

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Where everything of one workspace is.
macro_rules! of_workspace {
    ($rest:literal) => {
        concat!("/workspaces/{workspace}", $rest)
    };
}

struct Told {
    id: &'static str,
    words: &'static str,
}

fn get(path: &'static str, told: Told, params: &'static [Param], gives: Shape, run: Run) -> Route {
    let (right, gives) = (Some(Right::Look), Gives::Json(gives));
    let Told { id, words } = told;
    Route { method: Method::GET, path, id, words, right, params, takes: None, gives, run }
}

fn post(path: &'static str, told: Told, takes: Option<Shape>, gives: Shape, run: Run) -> Route {
    let (right, gives) = (Some(Right::Rewind), Gives::Json(gives));
    let Told { id, words } = told;
    Route { method: Method::POST, path, id, words, right, params: &[], takes, gives, run }
}

const fn told(id: &'static str, words: &'static str) -> Told {
    Told { id, words }
}

/// The table.
pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut all = of_the_server();
    all.extend(that_look());
    all.extend(at_files());
    all.extend(that_change());
    all
});

fn of_the_server() -> Vec<Route> {
    let own = |method, id, words, takes, gives, run| {
        let (path, params): (_, &[Param]) = ("/session", &[]);
        Route { method, path, id, words, right: None, params, takes, gives, run }
    };
    let session = Gives::Json(shape::<SessionView>);
    vec![
        Route {
            right: None,
            ..get(
                "/openapi.json",
                told("openapi", "This document"),
                &[],
                shape::<std::collections::BTreeMap<String, serde_json::Value>>,
                Run::Blocking(looking::document),
            )
        },
        own(
            Method::GET,
            "who",
            "Who asks, and what that one may do",
            None,
            session,
            Run::Blocking(looking::who),
        ),
        own(
            Method::POST,
            "signIn",
            "Exchange the code of a link, once, or a token for a cookie",
            Some(shape::<SignIn>),
            session,
            Run::Blocking(looking::sign_in),
        ),
        own(
            Method::DELETE,
            "signOut",
            "Forget the cookie",
            None,
            Gives::Nothing,
            Run::Blocking(looking::sign_out),
        ),
        get(
            "/workspaces",
            told("listWorkspaces", "The workspaces of the home"),
            &[],
            shape::<Workspaces>,
            Run::Blocking(looking::workspaces),
        ),
    ]
}

fn that_look() -> Vec<Route> {
    vec![
        get(
            of_workspace!("/status"),
            told("status", "How the workspace stands; looks at it first"),
            &[],
            shape::<Status>,
            Run::Blocking(looking::status),
        ),
        get(
            of_workspace!("/timeline"),
            told("timeline", "Turns, and what happened outside of them, newest first"),
            const {
                &[
                    BEFORE,
                    limit(500),
                    SESSION,
                    text("tool", "In which this tool was used"),
                    PATH,
                    PATH_B64,
                ]
            },
            shape::<TimelinePage>,
            Run::Blocking(looking::timeline),
        ),
        get(
            of_workspace!("/turns/{turn}"),
            told("getTurn", "One turn by its number"),
            &[],
            shape::<TimelineEntry>,
            Run::Blocking(looking::turn),
        ),
        get(
            of_workspace!("/snapshots"),
            told("listSnapshots", "Actions with their changes, newest first"),
            const {
                &[
                    BEFORE,
                    limit(100),
                    number("turn", 1, SEQ_MOST, "Of this turn only"),
                    SESSION,
                    PATH,
                    PATH_B64,
                ]
            },
            shape::<SnapshotPage>,
            Run::Blocking(looking::snapshots),
        ),
        get(
            of_workspace!("/snapshots/{snapshot}"),
            told("getSnapshot", "One action by any unique part of its id"),
            &[],
            shape::<SnapshotMetadata>,
            Run::Blocking(looking::snapshot),
        ),
        get(
            of_workspace!("/diff"),
            told("diff", "What differs between two moments, or what a turn or snapshot did"),
            const {
                &[
                    FROM,
                    TO,
                    OF,
                    PATH,
                    PATH_B64,
                    text("after", "Only paths behind this one: the last of the page before"),
                    text("after_b64", "The same as exact bytes in base64"),
                    limit(5000),
                    truth("patch", "With unified patches"),
                ]
            },
            shape::<Diff>,
            Run::Blocking(looking::diff),
        ),
        get(
            of_workspace!("/grep"),
            told("grep", "Lines in every version of every file, deleted ones too"),
            const {
                &[
                    text("pattern", "A regular expression"),
                    truth("literal", "The pattern is plain text"),
                    truth("any_case", "Upper and lower case are the same"),
                    text("glob", "Only paths that fit"),
                    limit(1000),
                ]
            },
            shape::<GrepPage>,
            Run::Blocking(looking::grep),
        ),
        get(
            of_workspace!("/health"),
            told("health", "Status, room, retention, verification, replicas and conflicts"),
            &[],
            shape::<Health>,
            Run::Blocking(health::health),
        ),
        get(
            of_workspace!("/verify"),
            told("verification", "How the last verification of this server stands"),
            &[],
            shape::<Verification>,
            Run::Blocking(health::verification),
        ),
        Route {
            gives: Gives::Events,
            ..get(
                of_workspace!("/events"),
                told("events", "A stream of `head` events: the log ends there now"),
                &[],
                shape::<String>,
                Run::Events,
            )
        },
    ]
}

fn at_files() -> Vec<Route> {
    vec![
        get(
            of_workspace!("/diff/file"),
            told("fileDiff", "How one file differs, as hunks of lines"),
            const { &[FROM, TO, OF, PATH, PATH_B64] },
            shape::<FileDiff>,
            Run::Blocking(looking::file_diff),
        ),
        get(
            of_workspace!("/history"),
            told("fileHistory", "One file's versions, newest first, across renames"),
            const { &[PATH, PATH_B64, BEFORE, limit(1000)] },
            shape::<HistoryPage>,
            Run::Blocking(files::history),
        ),
        Route {
            gives: Gives::Bytes,
            ..get(
                of_workspace!("/content"),
                told("fileContent", "One file's bytes at a moment; takes Range"),
                const { &[PATH, PATH_B64, AT] },
                shape::<String>,
                Run::Blocking(files::content),
            )
        },
        get(
            of_workspace!("/text"),
            told("fileText", "One file's lines at a moment, as far as they go"),
            const { &[PATH, PATH_B64, AT] },
            shape::<TextView>,
            Run::Blocking(files::text),
        ),
        get(
            of_workspace!("/blame"),
            told("blame", "Which change brought each line"),
            const { &[PATH, PATH_B64, AT] },
            shape::<BlameView>,
            Run::Blocking(files::blame),
        ),
        get(
            of_workspace!("/tree"),
            told("tree", "What stood directly in a directory at a moment"),
            const { &[PATH, PATH_B64, AT, text("after", "Only names behind this one"), limit(5000)] },
            shape::<TreeView>,
            Run::Blocking(files::tree),
        ),
        get(
            of_workspace!("/plans/{plan}/file"),
            told("planFile", "What a plan does to one file, as hunks that can be chosen"),
            const { &[PATH, PATH_B64] },
            shape::<FileDiff>,
            Run::Blocking(taking_back::plan_file),
        ),
    ]
}

fn that_change() -> Vec<Route> {
    vec![
        post(
            of_workspace!("/plans"),
            told("plan", "Plan a rewind, rollback, undo or redo; changes no file"),
            Some(shape::<PlanBody>),
            shape::<PlanView>,
            Run::Blocking(taking_back::plan),
        ),
        post(
            of_workspace!("/plans/{plan}/apply"),
            told("applyPlan", "Do exactly what a plan says, or nothing"),
            None,
            shape::<RewindReport>,
            Run::Blocking(taking_back::apply),
        ),
        post(
            of_workspace!("/snapshots"),
            told("takeSnapshot", "Save what an action is about to touch, before it starts"),
            Some(shape::<SnapshotBody>),
            shape::<SnapshotMetadata>,
            Run::Blocking(recording::snapshot),
        ),
        post(
            of_workspace!("/settle"),
            told("settle", "Record what changed since the last look"),
            None,
            shape::<SettleReport>,
            Run::Blocking(recording::settle),
        ),
        post(
            of_workspace!("/turns"),
            told("startTurn", "Open a turn"),
            Some(shape::<TurnBody>),
            shape::<TurnView>,
            Run::Blocking(recording::turn_start),
        ),
        post(
            of_workspace!("/turns/end"),
            told("endTurn", "Close a turn"),
            Some(shape::<TurnBody>),
            shape::<TurnView>,
            Run::Blocking(recording::turn_end),
        ),
        post(
            of_workspace!("/verify"),
            told("verify", "Verify the history, in the background"),
            Some(shape::<VerifyBody>),
            shape::<Verification>,
            Run::Blocking(health::verify),
        ),
    ]
}
