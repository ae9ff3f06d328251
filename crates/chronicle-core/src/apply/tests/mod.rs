//! Rewinds on real directories: a scene is captured, changed, and brought back.

mod crash;
mod exact;
mod kinds;
mod refuse;
mod scene;
