//! Chronicle in a terminal: the timeline, what changed, files at any moment, search, and taking back.
//!
//! A state (`model`), events that change it and ask for things (`update`), and a picture of it
//! (`view`) are pure; `worker` answers what is asked, each time on a workspace opened for it, and
//! `run` owns the terminal. Nothing of a workspace reaches the terminal but through `shown`, which
//! lets no control character through.

mod doc;
mod list;
mod model;
mod request;
mod run;
mod shown;
mod sixteen;
mod theme;
mod update;
mod view;
mod worker;

#[cfg(test)]
mod scenes;

pub use run::{Options, TuiError, run};
