//! As much of HTTP/1.1 as the clients need: one request and one answer per connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// More than any request of a scripted conversation.
const LARGEST: usize = 64 << 20;

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// The path with its query.
    pub(super) target: String,
    pub(super) body: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: &'static str,
    pub(super) kind: &'static str,
    pub(super) body: String,
}

/// Reads one request; `None` if the peer only opened and closed the connection.
pub(super) fn read(stream: &TcpStream) -> io::Result<Option<Request>> {
    let mut reader = BufReader::new(stream);
    let first = line(&mut reader)?;
    let mut words = first.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Ok(None);
    };
    let headers = headers(&mut reader)?;
    let header = |name: &str| {
        headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    };
    if header("expect").eq_ignore_ascii_case("100-continue") {
        (&mut &*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let body = if header("transfer-encoding").eq_ignore_ascii_case("chunked") {
        chunks(&mut reader)?
    } else {
        exactly(&mut reader, header("content-length").parse().unwrap_or(0))?
    };
    Ok(Some(Request { method: method.to_owned(), target: target.to_owned(), body }))
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    line.truncate(line.trim_end().len());
    Ok(line)
}

/// The names in lower case, and the values.
fn headers(reader: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let line = line(reader)?;
        let Some((name, value)) = line.split_once(':') else { return Ok(headers) };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = line(reader)?;
        let size = size.split(';').next().unwrap_or("");
        let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
        body.extend(exactly(reader, size)?);
        line(reader)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

fn exactly(reader: &mut impl Read, size: usize) -> io::Result<Vec<u8>> {
    if size > LARGEST {
        return Err(io::Error::other(format!("a body of {size} bytes")));
    }
    let mut body = vec![0; size];
    reader.read_exact(&mut body)?;
    Ok(body)
}

/// Sends the answer and closes.
pub(super) fn write(mut stream: &TcpStream, response: &Response) -> io::Result<()> {
    let Response { status, kind, body } = response;
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )?;
    stream.flush()
}
