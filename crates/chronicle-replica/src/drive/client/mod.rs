//! A replica's driver: one thread that owns the workspace and the session, and the link beside it.

mod actor;
mod dial;
mod work;

pub use actor::{ClientOptions, End, Told, run};
pub use dial::{Asked, Target, ask};
pub use work::SandboxWork;
