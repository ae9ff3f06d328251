//! Enough of S3 over HTTP for the fault server: what a request asks for, and the answers as XML.

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::{Response, StatusCode};

pub type Body = BoxBody<Bytes, std::io::Error>;

/// The one bucket that the server has.
pub const BUCKET: &str = "bucket";

/// What a request asks for.
#[derive(Debug)]
pub struct Asked {
    pub method: String,
    pub key: String,
    query: Vec<(String, String)>,
}

impl Asked {
    pub fn new(method: &str, path: &str, query: &str) -> Self {
        let path = path.trim_start_matches('/');
        let key = path.strip_prefix(BUCKET).unwrap_or(path).trim_start_matches('/');
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), decode(value))
        });
        Self { method: method.to_owned(), key: decode(key), query: pairs.collect() }
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).unwrap();
        match byte {
            b'%' => bytes.push((digit() << 4 | digit()) as u8),
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

pub fn answer(status: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

pub fn error(status: u16, code: &str) -> Response<Body> {
    answer(status, full(format!("<Error><Code>{code}</Code><Message>told to</Message></Error>")))
}

pub fn header(mut response: Response<Body>, name: &'static str, value: &str) -> Response<Body> {
    response.headers_mut().insert(name, value.parse().unwrap());
    response
}

/// What every answer about an object has.
pub fn about_object(response: Response<Body>) -> Response<Body> {
    let response = header(response, "etag", "\"tag\"");
    header(response, "last-modified", "Mon, 16 Nov 2026 10:00:00 GMT")
}

/// A page of a listing.
pub fn listing(page: &[(String, usize)], next: Option<&str>) -> Response<Body> {
    let item = |(key, size): &(String, usize)| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-16T10:00:00.000Z</LastModified>\
             <ETag>&quot;tag&quot;</ETag><Size>{size}</Size></Contents>"
        )
    };
    let items: String = page.iter().map(item).collect();
    let token = |next| format!("<NextContinuationToken>{next}</NextContinuationToken>");
    let (cut, token) = (next.is_some(), next.map(token).unwrap_or_default());
    let head = format!("<Name>{BUCKET}</Name><KeyCount>{}</KeyCount>", page.len());
    let tail = format!("<IsTruncated>{cut}</IsTruncated>{token}");
    answer(200, full(format!("<ListBucketResult>{head}{items}{tail}</ListBucketResult>")))
}
