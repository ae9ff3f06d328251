//! Ending what runs for long when a signal says so.

use std::io::Read;
use std::os::unix::net::UnixStream;

use chronicle_replica::drive::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::CommandError;

/// Stops it at the first SIGTERM or SIGINT; at the second the process ends as it always does.
pub(super) fn stop_on_signals(stop: &Stop) -> Result<(), CommandError> {
    let failed = |error| CommandError::io("Could not listen for signals", error);
    let (mut heard, told) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGTERM, SIGINT] {
        let told = told.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, told).map_err(failed)?;
    }
    let stop = stop.clone();
    let wait = move || {
        if matches!(heard.read(&mut [0]), Ok(1)) {
            stop.stop();
        }
        if matches!(heard.read(&mut [0]), Ok(1)) {
            std::process::exit(130);
        }
    };
    let spawned = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
    spawned.map(drop).map_err(failed)
}
