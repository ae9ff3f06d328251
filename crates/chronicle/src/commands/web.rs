//! `chronicle web`: the page and its API, until the process ends.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use chronicle_core::SCHEMA;
use chronicle_web::{Options, Ready, ServeError, serve};

use super::Invocation;
use crate::bucket::home as bucket_home;
use crate::cli::WebArgs;
use crate::environment;
use crate::error::{CommandError, Kind, Outcome};
use crate::ui;

pub(crate) fn execute(invocation: &mut Invocation, args: &WebArgs) -> Outcome {
    let home = bucket_home()?;
    home.make()?;
    let aside = home.path().join("web").join("open.html");
    let options = Options {
        home,
        directory: invocation.directory.clone(),
        off: environment::is_off(),
        read_only: args.read_only,
        listen: Some(args.listen),
        exposed: args.expose,
        hosts: args.hosts.clone(),
        socket: args.socket.as_ref().map(|path| invocation.directory.join(path)),
    };
    let opens = !args.no_open && !invocation.ui.json() && ui::person_present();
    serve(options, |ready| {
        tell(invocation, ready);
        if opens && let Some(link) = &ready.link {
            // Whoever cannot open one has the link.
            let _ = open_browser(link, &aside);
        }
    })?;
    Ok(0)
}

fn tell(invocation: &mut Invocation, ready: &Ready) {
    let ui = &mut invocation.ui;
    let words = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    if ui.json() {
        ui.data(&serde_json::json!({
            "schema": SCHEMA,
            "address": ready.address.map(|address| address.to_string()),
            "link": ready.link,
            "socket": words(&ready.socket),
            "look_token": ready.look_token.display().to_string(),
            "rewind_token": ready.rewind_token.display().to_string(),
        }));
    } else {
        if let Some(link) = &ready.link {
            ui.line(format!("Open {link}"));
        }
        ui.note("The link counts once. Programs and other browsers use a token:");
        ui.note(format!("  to look:   {}", ready.look_token.display()));
        ui.note(format!("  to rewind: {}", ready.rewind_token.display()));
        if let Some(socket) = words(&ready.socket) {
            ui.note(format!("  or the socket {socket}"));
        }
        ui.note("Stop with Ctrl-C");
    }
    let _ = ui.flush();
}

/// Opens the browser by a file of our own: what stands in a command line, others could read.
fn open_browser(link: &str, aside: &Path) -> std::io::Result<()> {
    let _ = std::fs::remove_file(aside);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(aside)?;
    write!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={link}\">")?;
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(aside).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

impl From<ServeError> for CommandError {
    fn from(error: ServeError) -> Self {
        let (kind, code, hint) = match &error {
            ServeError::NotLoopback(_) => (
                Kind::Usage,
                "usage",
                Some(
                    "Use an address like 127.0.0.1:8765 and ssh -L to reach it from elsewhere, or say \
                     --expose where the network itself is private",
                ),
            ),
            ServeError::Listen(..) => (Kind::Failed, "io", Some("Port 0 takes a free port")),
            ServeError::Token(..) => {
                (Kind::Failed, "io", Some("The directory and its files must be yours, mode 0600"))
            }
            _ => (Kind::Failed, "io", None),
        };
        let hints = hint.map(str::to_owned).into_iter().collect();
        Self { kind, code, error: error.into(), hints }
    }
}
