//! `chronicle demo`: what a newcomer sees first.

use super::Invocation;
use crate::cli::DemoArgs;
use crate::demo;
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, args: &DemoArgs) -> Outcome {
    demo::play(&mut invocation.ui, args.keep)
}
