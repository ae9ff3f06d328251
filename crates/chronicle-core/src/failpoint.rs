//! Named points at which a test kills or stops the process, to prove that nothing is lost there.
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
    "store_before_manifest",
    "store_after_object_data",
    "store_after_object_rename",
    "clone_after_sharing",
    "clone_after_naming",
    "resolve_before_commit",
    "resolve_after_commit",
    "gc_before_clones",
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
    "prune_before_commit",
    "prune_after_commit",
    "doctor_before_swap",
    "doctor_in_swap",
    "gc_before_commit",
    "forget_before_commit",
    "forget_after_commit",
    "forget_after_setting_apart",
    "export_after_commit",
    "export_before_ref",
    "evict_before_sweep",
    "gc_after_joining",
    "receive_before_commit",
    "receive_before_registration",
    "receive_after_registration",
    "pool_before_rename",
    "pool_in_eviction",
    "mount_after_save",
    "mount_after_fold",
    "mount_after_turn",
    "isolated_before_state",
    "isolated_after_state",
    "isolated_after_end",
    "isolated_after_contents",
    "isolated_before_commit",
    "isolated_after_commit",
    "isolated_in_discard",
    "direct_after_stage",
    "direct_after_steps",
    "direct_after_sync",
    "push_after_announcement",
    "push_before_commit",
    "push_after_commit",
    "redo_before_push",
    "fill_before_commit",
    "fill_after_commit",
    "writes_before_commit",
    "writes_after_commit",
    "answer_after_commit",
    "resolve_after_put",
    "checkpoint_after_prepare",
    "checkpoint_in_freeze",
    "checkpoint_after_boundary",
    "checkpoint_after_thaw",
    "checkpoint_after_part",
    "checkpoint_before_seal",
    "checkpoint_before_commit",
    "checkpoint_after_commit",
    "checkpoint_after_drop",
    "restore_after_gate",
    "restore_after_halt",
    "restore_after_present",
    "restore_after_part_beside",
    "restore_before_commit",
    "restore_after_commit",
    "restore_in_exchange",
    "restore_after_part_swapped",
    "restore_after_rewind",
    "restore_after_check",
    "restore_after_record",
    "restore_after_part_cleared",
    "restore_after_end",
];

/// Passes a point; kills the process if `CHRONICLE_FAILPOINT` names it (`name`, or `name:N` for
/// the N-th time), or only stops it (`stop:name`, `stop:name:N`), so that a test can let it go on.
#[cfg(feature = "failpoints")]
pub fn hit(name: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static CHOSEN: OnceLock<Option<Chosen>> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);

    assert!(ALL.contains(&name), "BUG: failpoint {name} is not listed");
    let chosen = CHOSEN.get_or_init(|| Some(parse(&std::env::var("CHRONICLE_FAILPOINT").ok()?)));
    let Some(chosen) = chosen else { return };
    if chosen.name == name && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == chosen.count {
        use rustix::process::Signal;
        let signal = if chosen.stops { Signal::STOP } else { Signal::KILL };
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
}

/// Passes a point.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn hit(_name: &'static str) {}

/// The boot of the machine that `CHRONICLE_BOOT` names: a test's way to reboot it.
#[cfg(feature = "failpoints")]
pub fn boot() -> Option<String> {
    std::env::var("CHRONICLE_BOOT").ok()
}

/// No boot but the machine's.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn boot() -> Option<String> {
    None
}

/// What `CHRONICLE_FAILPOINT` asks for.
#[cfg(any(test, feature = "failpoints"))]
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    name: String,
    /// Which time the point is passed, from 1.
    count: u64,
    /// The process is only stopped.
    stops: bool,
}

/// Splits `stop:name:N`; without a number it is the first time.
#[cfg(any(test, feature = "failpoints"))]
fn parse(text: &str) -> Chosen {
    let (text, stops) = match text.strip_prefix("stop:") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (name, count) = match text.split_once(':').map(|(name, count)| (name, count.parse())) {
        Some((name, Ok(count))) => (name, count),
        _ => (text, 1),
    };
    Chosen { name: name.to_owned(), count, stops }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_may_name_the_time_at_which_it_kills() {
        let chosen = |count, stops| Chosen { name: "rewind_after_step".into(), count, stops };
        assert_eq!(parse("rewind_after_step"), chosen(1, false));
        assert_eq!(parse("rewind_after_step:7"), chosen(7, false));
        assert_eq!(parse("stop:rewind_after_step"), chosen(1, true));
        assert_eq!(parse("stop:rewind_after_step:7"), chosen(7, true));
    }

    #[test]
    fn names_are_listed_once() {
        let mut names = ALL.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
