//! `chronicle head`: the signed head of everything recorded, and proofs about it.

use chronicle_core::{ProofView, Seq, Workspace};

use super::Invocation;
use crate::cli::HeadArgs;
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, args: &HeadArgs) -> Outcome {
    let mut workspace = invocation.open()?;
    let signed = workspace.head()?;
    let ui = &mut invocation.ui;
    let size = signed.head.size;
    let proof = match (args.prove, args.since) {
        (Some(seq), _) => Some(workspace.prove_record(Seq(seq), size)?),
        (_, Some(old)) => Some(workspace.prove_growth(old, size)?),
        _ => None,
    };
    match proof {
        Some(proof) if ui.json() => ui.data(&proof),
        Some(proof) => ui.print(&proof_lines(&proof)),
        None if ui.json() => ui.data(&Workspace::head_view(&signed)),
        None => ui.print(&signed.text()),
    }
    Ok(0)
}

/// What is proven, then one hash a line.
fn proof_lines(proof: &ProofView) -> String {
    let about = match &proof.leaf_hash {
        Some(leaf) => format!("record {} in {}\nleaf {leaf}", proof.from, proof.size),
        None => format!("{} in {}", proof.from, proof.size),
    };
    std::iter::once(&about).chain(&proof.proof).map(|line| format!("{line}\n")).collect()
}
