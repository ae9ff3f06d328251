//! The page: a few files that are part of the program, sent with a name for their content.

use std::sync::LazyLock;

use http::{HeaderValue, Method, Request, StatusCode, header};

use crate::answer::{self, Answered};
use crate::problem::Problem;

/// One file.
struct Asset {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($name:literal) => {
        Asset {
            path: concat!("/js/", $name),
            kind: SCRIPT,
            bytes: include_bytes!(concat!("../page/js/", $name)),
        }
    };
}

static ASSETS: &[Asset] = &[
    Asset {
        path: "/",
        kind: "text/html; charset=utf-8",
        bytes: include_bytes!("../page/index.html"),
    },
    Asset {
        path: "/style.css",
        kind: "text/css; charset=utf-8",
        bytes: include_bytes!("../page/style.css"),
    },
    Asset { path: "/icon.svg", kind: "image/svg+xml", bytes: include_bytes!("../page/icon.svg") },
    script!("main.js"),
    script!("minimap.js"),
    script!("api.js"),
    script!("blame.js"),
    script!("diff.js"),
    script!("dom.js"),
    script!("file.js"),
    script!("format.js"),
    script!("health.js"),
    script!("highlight.js"),
    script!("keys.js"),
    script!("list.js"),
    script!("rewind.js"),
    script!("router.js"),
    script!("search.js"),
    script!("text.js"),
    script!("timeline.js"),
    script!("turn.js"),
    script!("words.js"),
];

/// The content's name, for each.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |asset: &Asset| format!("\"{}\"", &blake3::hash(asset.bytes).to_hex()[..32]);
    ASSETS.iter().map(tag).collect()
});

/// Sends a file of the page. It holds nothing of anybody's workspace, so nobody has to be known.
pub(crate) fn answer<B>(request: &Request<B>) -> Result<Answered, Problem> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let words = format!("{} is not possible here", request.method());
        let mut problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", words);
        problem.allow = Some("GET, HEAD".to_owned());
        return Err(problem);
    }
    let path = match request.uri().path() {
        "/favicon.ico" => "/icon.svg",
        path => path,
    };
    let Some(index) = ASSETS.iter().position(|asset| asset.path == path) else {
        return Err(Problem::new(StatusCode::NOT_FOUND, "not_found", "There is no such page"));
    };
    let (asset, tag) = (&ASSETS[index], &TAGS[index]);
    let known = request.headers().get(header::IF_NONE_MATCH);
    let mut response = match known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        true => answer::full(StatusCode::NOT_MODIFIED, asset.kind, &b""[..]),
        false => answer::full(StatusCode::OK, asset.kind, asset.bytes),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.extend(HeaderValue::from_str(tag).map(|tag| (header::ETAG, tag)));
    Ok(response)
}
