//! `chronicle serve`: workspaces for replicas, until a signal ends it.

use std::net::SocketAddr;
use std::path::PathBuf;

use chronicle_core::{SCHEMA, Workspace};
use chronicle_replica::Limits;
use chronicle_replica::drive::{
    Identity, Listening, ServerError, ServerOptions, Stop, Trace, serve,
};

use rustix::process::{Resource, getrlimit, setrlimit};

use super::Invocation;
use super::fleet::shared_logs;
use super::signals::stop_on_signals;
use crate::bucket::home as bucket_home;
use crate::cli::ServeArgs;
use crate::environment;
use crate::error::{CommandError, Kind, Outcome};

pub(crate) fn execute(invocation: &mut Invocation, args: &ServeArgs) -> Outcome {
    check_addresses(args)?;
    allow_many_descriptors();
    let options = options(invocation, args)?;
    let stop = Stop::default();
    stop_on_signals(&stop)?;
    let (json, socket) = (invocation.ui.json(), options.socket.clone());
    let (secure, roots) = (options.identity.is_some(), options.roots.clone());
    let shared = args.log.is_some();
    serve(options, &stop, |listening| {
        if json {
            let line = serde_json::json!({
                "schema": SCHEMA,
                "socket": socket.as_ref().map(|path| path.to_string_lossy()),
                "websocket": listening.websocket.map(|address| url(address, secure)),
                "metrics": listening.metrics.map(|address| format!("http://{address}/metrics")),
                "workspaces": listening.workspaces.iter().map(|id| id.hex()).collect::<Vec<_>>(),
            });
            invocation.ui.data(&line);
            let _ = std::io::Write::flush(&mut invocation.ui);
        } else {
            tell(invocation, listening, socket.as_deref(), secure, &roots);
            if shared {
                tell_shared(invocation, listening);
            }
        }
    })?;
    invocation.ui.note("Stopped");
    Ok(0)
}

/// A connection is a descriptor: as many as the system lets this process have.
fn allow_many_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With fewer, those who come later wait.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn url(address: SocketAddr, secure: bool) -> String {
    format!("{}://{address}", if secure { "wss" } else { "ws" })
}

fn tell(
    invocation: &mut Invocation,
    listening: &Listening,
    socket: Option<&std::path::Path>,
    secure: bool,
    roots: &[PathBuf],
) {
    for root in roots {
        invocation.ui.note(format!("Serving {}", root.display()));
    }
    if let Some(socket) = socket {
        invocation
            .ui
            .note(format!("On this machine: chronicle connect --socket {} DIR", socket.display()));
    }
    if let Some(address) = listening.websocket {
        let url = url(address, secure);
        invocation
            .ui
            .note(format!("From elsewhere: chronicle connect --ws {url} --token-file FILE DIR"));
    }
    if let Some(address) = listening.metrics {
        invocation.ui.note(format!("Metrics: http://{address}/metrics"));
    }
}

fn tell_shared(invocation: &mut Invocation, listening: &Listening) {
    for id in &listening.workspaces {
        let id = id.hex();
        let words = "From another host, the same workspace: chronicle serve --log URL --join";
        invocation.ui.note(format!("{words} {id} DIR"));
    }
}

/// Nothing is opened to other machines by accident.
fn check_addresses(args: &ServeArgs) -> Result<(), CommandError> {
    if let Some(address) = args.ws
        && !address.ip().is_loopback()
        && args.tls_cert.is_none()
        && !args.without_tls
    {
        let words =
            format!("{address} can be reached by other machines, and nothing would be encrypted");
        let hint = "Give --tls-cert and --tls-key, or say --without-tls where the network itself is private";
        return Err(CommandError::usage(words).hinted(hint));
    }
    match args.metrics {
        Some(address) if !address.ip().is_loopback() => {
            let words = format!("{address} is not a loopback address: metrics need no token");
            Err(CommandError::usage(words).hinted("Give an address like 127.0.0.1:9400"))
        }
        _ => Ok(()),
    }
}

fn options(invocation: &Invocation, args: &ServeArgs) -> Result<ServerOptions, CommandError> {
    let home = bucket_home()?;
    let named: Vec<_> = match &args.directories[..] {
        [] => vec![invocation.directory.clone()],
        named => named.iter().map(|dir| invocation.directory.join(dir)).collect(),
    };
    let mut roots = Vec::new();
    for directory in named {
        let root = Workspace::open(&home, &directory)?.root().to_owned();
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    let identity = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            let files = [certificate, key].map(|file| invocation.directory.join(file));
            let words = format!("Could not use {} and its key", files[0].display());
            let identity = Identity::read(&files[0], &files[1]);
            Some(identity.map_err(|error| CommandError::io(words, error))?)
        }
        _ => None,
    };
    let shared = shared_logs(&home, &roots, args)?;
    Ok(ServerOptions {
        home,
        roots,
        shared,
        socket: args.socket.as_ref().map(|path| invocation.directory.join(path)),
        allow_uids: args.allow_uid.clone(),
        websocket: args.ws,
        hosts: args.hosts.clone(),
        identity,
        metrics: args.metrics,
        trace: trace(invocation, args.trace.as_deref())?,
        limits: std::sync::Arc::new(Limits::default()),
    })
}

/// Where events go: the named file, or that of `CHRONICLE_TRACE`.
pub(super) fn trace(
    invocation: &Invocation,
    named: Option<&std::path::Path>,
) -> Result<Trace, CommandError> {
    let named = named.map(PathBuf::from).or_else(environment::trace);
    let trace = match named.map(|path| invocation.directory.join(path)) {
        None => Trace::default(),
        Some(path) => {
            let words = format!("Could not write a trace to {}", path.display());
            Trace::to(&path).map_err(|error| CommandError::io(words, error))?
        }
    };
    #[cfg(feature = "otel")]
    if let Some(url) = environment::collector() {
        let words = "OTEL_EXPORTER_OTLP_ENDPOINT cannot be used";
        let name = environment::service().unwrap_or_else(|| "chronicle".to_owned());
        let sent = trace.and_to_collector(&url, &name);
        return sent.map_err(|error| CommandError::io(words, error));
    }
    Ok(trace)
}

impl From<ServerError> for CommandError {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Workspace(error) => error.into(),
            ServerError::Listen(..) => {
                let hint = "Choose another place: the directory of a socket must be yours alone (0700), and port 0 takes a free port";
                Self {
                    kind: Kind::Failed,
                    code: "io",
                    error: error.into(),
                    hints: vec![hint.to_owned()],
                }
            }
            other => {
                Self { kind: Kind::Failed, code: "io", error: other.into(), hints: Vec::new() }
            }
        }
    }
}
