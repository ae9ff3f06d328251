//! A replica's driver: one thread that owns the workspace and the session, and the link beside it.

mod actor;
mod ask;
mod dial;
mod lazy;
mod work;

pub use actor::{ClientOptions, End, Told, run};
pub use ask::{NotFetched, ask_to_fetch};
pub use dial::{Asked, Target, ask};
pub use work::SandboxWork;
