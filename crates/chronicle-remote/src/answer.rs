//! Looks at every answer on its way, because the store's own errors do not tell what the server said.
//!
//! The status, the code in the body and the pause that the server asks for are noted for the attempt
//! that is under way, and no answer may be longer than anything of ours.

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

use crate::error::{Cause, Failure};

/// The longest body of an answer, whatever it answers.
pub(crate) const ANSWER_MAX: u64 = 320 << 20;

/// The longest body of an answer that is an error.
const ERROR_MAX: usize = 64 << 10;

/// The longest word that a server may use for what went wrong.
const CODE_MAX: usize = 64;

/// What the last answer of an attempt said.
#[derive(Debug, Default, Clone)]
pub(crate) struct Answer {
    /// The status of the last answer.
    status: Option<u16>,
    /// The server's own word for the failure.
    code: String,
    /// How long the server wants to be left alone.
    pub(crate) pause: Option<Duration>,
    /// What the connection said, if there was no answer.
    cut: String,
    too_long: bool,
}

tokio::task_local! {
    static ANSWER: RefCell<Answer>;
}

/// Does the work and gives what was answered to it.
pub(crate) async fn noting<T>(work: impl Future<Output = T>) -> (T, Answer) {
    let noted = async {
        let result = work.await;
        (result, ANSWER.with(|answer| answer.borrow().clone()))
    };
    ANSWER.scope(RefCell::default(), noted).await
}

fn note(change: impl FnOnce(&mut Answer)) {
    // Outside an attempt nobody asks.
    let _ = ANSWER.try_with(|answer| change(&mut answer.borrow_mut()));
}

impl Answer {
    fn failed(&self) -> bool {
        self.status.is_some_and(|status| status >= 400)
    }

    /// Whether the request may have been carried out although it failed.
    pub(crate) fn is_ambiguous(&self) -> bool {
        !self.failed() || matches!(self.status, Some(409 | 412))
    }

    /// What this answer and the error that was made of it mean.
    pub(crate) fn failure(&self, error: &object_store::Error) -> Failure {
        let cause = self.cause(error);
        let detail = match (self.failed(), self.code.is_empty()) {
            (true, true) => format!("status {}", self.status.unwrap_or_default()),
            (true, false) => self.code.clone(),
            (false, _) if !self.cut.is_empty() => self.cut.clone(),
            (false, _) => innermost(error),
        };
        Failure { cause, detail }
    }

    fn cause(&self, error: &object_store::Error) -> Cause {
        if self.too_long {
            return Cause::TooLong;
        }
        let by_code = if self.failed() { cause_of_code(&self.code) } else { None };
        by_code.or_else(|| self.cause_of_status()).unwrap_or_else(|| cause_of_error(error))
    }

    fn cause_of_status(&self) -> Option<Cause> {
        match self.status? {
            401 => Some(Cause::Credentials),
            403 => Some(Cause::Denied),
            404 => Some(Cause::Missing),
            408 | 429 | 500.. => Some(Cause::Unavailable),
            409 | 412 => Some(Cause::Conflict),
            416 => Some(Cause::Damaged),
            300.. => Some(Cause::Refused),
            _ => None,
        }
    }
}

fn cause_of_code(code: &str) -> Option<Cause> {
    match code {
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => Some(Cause::Expired),
        "RequestTimeTooSkewed" | "RequestExpired" => Some(Cause::ClockSkew),
        "NoSuchBucket" => Some(Cause::NoBucket),
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "InvalidSecurity" => {
            Some(Cause::Credentials)
        }
        "SlowDown" | "InternalError" | "ServiceUnavailable" | "RequestTimeout" => {
            Some(Cause::Unavailable)
        }
        _ => None,
    }
}

/// What is known without an answer: from a store in memory, or where the connection broke.
fn cause_of_error(error: &object_store::Error) -> Cause {
    use object_store::Error as E;
    match error {
        E::NotFound { .. } => Cause::Missing,
        E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => Cause::Conflict,
        E::PermissionDenied { .. } => Cause::Denied,
        E::Unauthenticated { .. } => Cause::Credentials,
        E::Generic { .. } | E::JoinError { .. } => Cause::Unavailable,
        _ => Cause::Refused,
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Connects as the store would, and looks at what comes back.
#[derive(Debug, Default)]
pub(crate) struct Noting(ReqwestConnector);

impl HttpConnector for Noting {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Client(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Client(HttpClient);

#[async_trait::async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        match self.0.execute(request).await {
            Ok(response) if response.status().as_u16() < 400 => Ok(bounded(response)),
            Ok(response) => failed(response).await,
            Err(error) => {
                let cut = innermost(&error);
                note(|answer| *answer = Answer { cut, ..Answer::default() });
                Err(error)
            }
        }
    }
}

fn bounded(response: HttpResponse) -> HttpResponse {
    let (parts, body) = response.into_parts();
    let header = |name| parts.headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let too_long = header("content-length").is_some_and(|length| length > ANSWER_MAX);
    let status = Some(parts.status.as_u16());
    note(|answer| *answer = Answer { status, too_long, ..Answer::default() });
    let limit = if too_long { 0 } else { usize::try_from(ANSWER_MAX).unwrap_or(usize::MAX) };
    let body = Limited::new(body, limit)
        .map_err(|error| HttpError::new_boxed(HttpErrorKind::Decode, error));
    HttpResponse::from_parts(parts, HttpResponseBody::new(body))
}

async fn failed(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    // Only for its code: an error whose body cannot be read is still an error.
    let body = match Limited::new(body, ERROR_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::new(),
    };
    let seconds = |value: &str| value.trim().parse().ok().map(Duration::from_secs);
    let pause = parts.headers.get("retry-after").and_then(|value| seconds(value.to_str().ok()?));
    let (status, code) = (Some(parts.status.as_u16()), code_in(&String::from_utf8_lossy(&body)));
    note(|answer| *answer = Answer { status, code, pause, ..Answer::default() });
    Ok(HttpResponse::from_parts(parts, body.into()))
}

/// The word between the tags, if it is one.
fn code_in(body: &str) -> String {
    let code = body.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let is_word = |code: &&str| {
        code.len() <= CODE_MAX && code.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    code.map(|(code, _)| code).filter(is_word).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, code: &str, expected: Cause) {
        let answer = Answer { status: Some(status), code: code.to_owned(), ..Answer::default() };
        let error = object_store::Error::Generic { store: "S3", source: "x".into() };
        assert_eq!(answer.failure(&error).cause, expected, "{status} {code}");
    }

    #[test]
    fn code_goes_before_the_status_and_the_status_before_a_guess() {
        check(403, "", Cause::Denied);
        check(403, "AccessDenied", Cause::Denied);
        check(403, "ExpiredToken", Cause::Expired);
        check(400, "ExpiredToken", Cause::Expired);
        check(403, "RequestTimeTooSkewed", Cause::ClockSkew);
        check(403, "SignatureDoesNotMatch", Cause::Credentials);
        check(404, "NoSuchBucket", Cause::NoBucket);
        check(404, "NoSuchKey", Cause::Missing);
        check(400, "RequestTimeout", Cause::Unavailable);
        check(400, "InvalidArgument", Cause::Refused);
        check(301, "", Cause::Refused);
        check(503, "SlowDown", Cause::Unavailable);
        check(429, "", Cause::Unavailable);
        check(200, "", Cause::Unavailable);
    }

    #[test]
    fn code_is_a_short_word_or_nothing() {
        assert_eq!(code_in("<Error><Code>NoSuchKey</Code></Error>"), "NoSuchKey");
        assert_eq!(code_in("<Code>a b</Code>"), "");
        assert_eq!(code_in(&format!("<Code>{}</Code>", "x".repeat(65))), "");
        assert_eq!(code_in("<Code>"), "");
    }
}
