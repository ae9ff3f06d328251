//! History as commits of a git repository: the moments that become one, their trees and words, and
//! the git that takes them in.
//!
//! Every part is a function of the log up to the moment, so that the same history always gives the
//! same commits and more history only adds to them.

mod import;
mod moments;
mod tree;
mod words;

pub(crate) use import::{Import, Target};
pub(crate) use moments::{Moments, Point};
pub(crate) use tree::{Leaf, Step, Tree};
pub(crate) use words::position;

/// Where exported history lies in a repository; no other ref is ever written.
pub(crate) const REFS: &str = "refs/chronicle/";
