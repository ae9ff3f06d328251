//! Many small objects to an S3 server on loopback, beside one large multipart upload of as many bytes.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chronicle_core::{ObjectId, pack_object};
use chronicle_remote::{Bucket, BucketOptions, RemoteKey, RemoteStore};

use crate::measure::Result;
use crate::rows::Row;

const OBJECTS: usize = 100_000;
const ROUNDS: usize = 3;
const SERVER: &str = "target/tools/moto/bin/moto_server";

/// The server, which notes every request.
struct Server {
    process: Child,
    port: u16,
    log: std::path::PathBuf,
}

impl Server {
    fn start(scratch: &Path) -> Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let log = scratch.join("requests");
        let process = Command::new(SERVER)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        let server = Self { process, port, log };
        let begun = Instant::now();
        while !server.make_bucket() {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err("the S3 server does not come up".into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    fn make_bucket(&self) -> bool {
        use std::io::{Read, Write};
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let request = "PUT /bucket HTTP/1.1\r\nHost: localhost\r\nAuthorization: AWS4-HMAC-SHA256 \
                       Credential=access/20261116/us-east-1/s3/aws4_request\r\n\
                       Content-Length: 0\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    fn bucket(&self, prefix: &str) -> Result<Bucket> {
        let options = BucketOptions {
            endpoint: Some(format!("http://127.0.0.1:{}", self.port)),
            region: Some("us-east-1".to_owned()),
            access_key: Some("access".to_owned()),
            secret_key: Some("secret".to_owned()),
            ..BucketOptions::default()
        };
        Ok(Bucket::open(&format!("s3://bucket/{prefix}"), &options)?)
    }

    /// Requests that it has noted so far.
    fn requests(&self) -> Result<usize> {
        let text = std::fs::read_to_string(&self.log)?;
        Ok(text.lines().filter(|line| line.contains(" HTTP/1.1\"")).count())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn rows(scratch: &Path) -> Result<Vec<Row>> {
    let server = Server::start(scratch)?;
    let objects: Vec<(ObjectId, Vec<u8>)> = (0..OBJECTS)
        .map(|number| {
            let content = crate::trees::content(number, 0);
            (ObjectId::of(&content), pack_object(&content))
        })
        .collect();
    let bytes: usize = objects.iter().map(|(_, stored)| stored.len()).sum();
    let one: Vec<u8> = objects.iter().flat_map(|(_, stored)| stored).copied().collect();
    let (mut many, mut single, mut requests) = (f64::MAX, f64::MAX, 0);
    for round in 0..ROUNDS {
        let bucket = server.bucket(&format!("one-{round}"))?;
        let begun = Instant::now();
        bucket.put("large", one.clone())?;
        single = single.min(begun.elapsed().as_secs_f64());
        let before = server.requests()?;
        let begun = Instant::now();
        let key = RemoteKey::derive(&[7; 32]);
        let bucket = server.bucket(&format!("many-{round}"))?;
        let store = RemoteStore::connect(bucket, Some(key))?;
        let written = store.write_all(objects.iter().cloned().map(Ok))?;
        many = many.min(begun.elapsed().as_secs_f64());
        requests = server.requests()? - before;
        if written.objects != OBJECTS as u64 {
            return Err("not everything was written".into());
        }
    }
    let megabytes = bytes as f64 / 1e6;
    Ok(vec![
        Row {
            what: format!(
                "{OBJECTS} small objects to S3 on loopback, sealed ({megabytes:.0} MB): requests"
            ),
            ours: requests as f64,
            limit: 200.0,
            unit: "requests",
            beside: "fixed bound",
            bound: 1.0,
        },
        Row {
            what: "the same: time".to_owned(),
            ours: many,
            limit: single,
            unit: "s",
            beside: "one multipart upload of as many bytes",
            // At least 70 % of that bandwidth.
            bound: 1.0 / 0.7,
        },
    ])
}
