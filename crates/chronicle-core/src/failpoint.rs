//! Named points at which a test kills the process, to prove that nothing is lost there.
//!
//! Without the feature `failpoints` a point costs nothing and does nothing.

/// Every point that the code passes.
pub const ALL: &[&str] = &[
    "store_after_pack_created",
    "store_after_pack_data",
    "store_after_pack_rename",
    "store_after_index_data",
    "store_after_index_rename",
    "store_after_index_removal",
    "store_after_object_data",
    "store_after_object_rename",
    "catalog_before_commit",
    "capture_before_commit",
    "capture_after_commit",
    "init_after_batch",
    "rewind_after_look",
    "rewind_after_stage",
    "rewind_after_commit_point",
    "rewind_after_step",
    "rewind_after_apply",
    "rewind_after_record",
    "rewind_after_clean_up",
    "purge_after_unregister",
    "purge_after_history",
];

/// Passes a point; kills the process if `CHRONICLE_FAILPOINT` names it (`name`, or `name:N` for
/// the N-th time).
#[cfg(feature = "failpoints")]
pub(crate) fn hit(name: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static CHOSEN: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);

    assert!(ALL.contains(&name), "BUG: failpoint {name} is not listed");
    let chosen = CHOSEN.get_or_init(|| std::env::var("CHRONICLE_FAILPOINT").ok().map(parse));
    let Some((wanted, count)) = chosen else { return };
    if wanted == name && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *count {
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    }
}

/// Passes a point.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn hit(_name: &'static str) {}

/// Splits `name:N`; without a number it is the first time.
#[cfg(any(test, feature = "failpoints"))]
fn parse(text: String) -> (String, u64) {
    match text.split_once(':').map(|(name, count)| (name, count.parse())) {
        Some((name, Ok(count))) => (name.to_owned(), count),
        _ => (text, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_may_name_the_time_at_which_it_kills() {
        assert_eq!(parse("rewind_after_step".into()), ("rewind_after_step".into(), 1));
        assert_eq!(parse("rewind_after_step:7".into()), ("rewind_after_step".into(), 7));
    }

    #[test]
    fn names_are_listed_once() {
        let mut names = ALL.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
