//! Who must allow what takes protection away: nobody in particular, or an operator whose key the
//! agents' user cannot read.
//!
//! Who the operator is stands in the log, and so does the grant of everything that took history
//! away since: an agent that goes around the commands is found out by `verify`.

use super::{PATIENCE, Workspace, key};
use crate::catalog::{Batch, Durability, LocalState};
use crate::codec;
use crate::error::{Error, Finding, Result, Stop};
use crate::grant::{Act, SignedGrant};
use crate::head::PublicKey;
use crate::id::Seq;
use crate::record::{Kind, Labels, Record};

/// Grants that may wait to be used; more is noise.
const GRANTS_MAX: usize = 64;

impl Workspace {
    /// The operator's key, if there is one.
    pub fn operator(&self) -> Result<Option<PublicKey>> {
        let Some(last) = self.catalog.of_kind(Kind::Operator)?.pop() else { return Ok(None) };
        Ok(self.read_header(last)?.labels.operator)
    }

    /// From now on what takes protection away needs a grant that this key signed.
    pub fn require_operator(&mut self, operator: PublicKey) -> Result<()> {
        self.refuse_agents("name an operator")?;
        let _lock = self.lock(PATIENCE)?;
        let grant = self.grant_for(Act::Operator)?;
        let labels = Labels {
            summary: Some("operator: takes the say over what takes protection away".to_owned()),
            operator: Some(operator),
            grant: grant.as_ref().map(SignedGrant::text),
            ..Labels::default()
        };
        let record = self.record(Kind::Operator, labels);
        let mut batch = Batch { records: vec![record], ..Batch::default() };
        self.use_up(grant.as_ref(), &mut batch)?;
        self.commit_signed(batch).map(drop)
    }

    /// Keeps a grant for the act that it is about.
    pub fn keep_grant(&mut self, text: &str) -> Result<SignedGrant> {
        let unusable = |why: &str| Error::Usage(format!("The grant cannot be used: {why}"));
        let whole = format!("{}\n", text.trim());
        let signed =
            SignedGrant::parse(&whole).ok_or_else(|| unusable("it is no grant, or was changed"))?;
        let operator = self.operator()?.ok_or_else(|| unusable("no operator is named here"))?;
        self.fits(&signed, operator).map_err(unusable)?;
        let _lock = self.lock(PATIENCE)?;
        let mut kept = self.grants()?;
        if kept.len() >= GRANTS_MAX {
            return Err(unusable("too many others wait"));
        }
        kept.retain(|other| *other != signed);
        kept.push(signed.clone());
        let batch = Batch { state: vec![(key::GRANTS, Some(encode(&kept)))], ..Batch::default() };
        self.commit_batch(batch, Durability::PowerCut)?;
        Ok(signed)
    }

    /// Whether an act may go on as far as the operator is concerned.
    pub fn is_granted(&self, act: Act) -> Result<bool> {
        match self.grant_for(act) {
            Ok(grant) => Ok(grant.is_some()),
            Err(Error::Stopped(Stop::NeedsOperator(_))) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The name of this log, for who grants something in it.
    pub fn log_name(&self) -> String {
        format!("{}/{}", self.id.hex(), self.catalog.epoch().hex())
    }

    /// Lets an act go on that is no agent's, and that the operator allowed if there is one.
    pub fn authorize(&mut self, act: Act) -> Result<()> {
        self.refuse_agents(act.words())?;
        let _lock = self.lock(PATIENCE)?;
        let grant = self.grant_for(act)?;
        let mut batch = Batch::default();
        self.use_up(grant.as_ref(), &mut batch)?;
        if batch.state.is_empty() {
            return Ok(());
        }
        self.commit_batch(batch, Durability::PowerCut).map(drop)
    }

    /// The grant for an act; `None` where nobody's is needed.
    pub(super) fn grant_for(&self, act: Act) -> Result<Option<SignedGrant>> {
        let Some(operator) = self.operator()? else { return Ok(None) };
        let kept = self.grants()?;
        let fitting =
            |signed: &SignedGrant| signed.grant.act == act && self.fits(signed, operator).is_ok();
        let found = kept.into_iter().find(fitting);
        found.map(Some).ok_or(Error::Stopped(Stop::NeedsOperator(act)))
    }

    /// Notes that a grant was used, with what it was used for.
    pub(super) fn use_up(&self, used: Option<&SignedGrant>, batch: &mut Batch) -> Result<()> {
        let Some(used) = used.filter(|used| !used.grant.act.stands()) else { return Ok(()) };
        let mut kept = self.grants()?;
        kept.retain(|other| other != used);
        let mut nonces = self.catalog.state(key::USED_GRANTS)?.unwrap_or_default();
        nonces.extend_from_slice(&used.grant.nonce);
        batch.state.push((key::GRANTS, Some(encode(&kept))));
        batch.state.push((key::USED_GRANTS, Some(nonces)));
        Ok(())
    }

    fn grants(&self) -> Result<Vec<SignedGrant>> {
        let bytes = self.catalog.state(key::GRANTS)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(text.split_terminator('\0').filter_map(SignedGrant::parse).collect())
    }

    /// Whether a grant holds here and now.
    fn fits(&self, signed: &SignedGrant, operator: PublicKey) -> Result<(), &'static str> {
        let grant = &signed.grant;
        if grant.key != operator {
            return Err("another key signed it than the operator's");
        }
        if grant.workspace != self.id || grant.epoch != self.catalog.epoch() {
            return Err("it is for another workspace");
        }
        if grant.until < self.now() {
            return Err("its time is over");
        }
        let used = self.catalog.state(key::USED_GRANTS).ok().flatten().unwrap_or_default();
        if used.chunks_exact(16).any(|nonce| nonce == grant.nonce) {
            return Err("it was used already");
        }
        Ok(())
    }

    /// Whatever took history away since there is an operator has the operator's grant.
    pub(super) fn verify_grants(&self) -> Result<()> {
        let mut seqs = Vec::new();
        for kind in [Kind::Operator, Kind::Prune, Kind::Forget] {
            seqs.extend(self.catalog.of_kind(kind)?);
        }
        seqs.sort_unstable();
        let (mut operator, mut used) = (None, Vec::new());
        for seq in seqs {
            let sealed = self.catalog.record(seq)?.ok_or_else(|| Error::missing_record(seq))?;
            let header = codec::decode_header(&sealed.leaf)
                .map_err(|source| Error::Record { seq, source })?;
            if let Some(operator) = operator {
                check_granted(&header, operator, &mut used).map_err(|why| ungranted(seq, why))?;
            }
            if header.kind == Kind::Operator {
                operator = header.labels.operator;
            }
        }
        Ok(())
    }
}

/// Whether a record has a grant that fits it and was not used before.
fn check_granted(
    record: &Record,
    operator: PublicKey,
    used: &mut Vec<[u8; 16]>,
) -> Result<(), &'static str> {
    let text = record.labels.grant.as_deref().ok_or("it has no grant of the operator")?;
    let signed = SignedGrant::parse(text).ok_or("its grant was not signed")?;
    let grant = &signed.grant;
    let act = match record.kind {
        Kind::Prune => Act::Prune,
        Kind::Forget => Act::Forget,
        _ => Act::Operator,
    };
    if grant.key != operator {
        return Err("its grant is not the operator's");
    }
    let log = (grant.workspace, grant.epoch);
    if grant.act != act || log != (record.workspace, record.epoch) || grant.until < record.time {
        return Err("its grant is for something else");
    }
    if !act.stands() && used.contains(&grant.nonce) {
        return Err("its grant was used before");
    }
    used.push(grant.nonce);
    Ok(())
}

fn ungranted(seq: Seq, why: &str) -> Error {
    let why = format!("it takes history away, and {why}");
    Error::Tampered { seq, finding: Finding::Ungranted, why }
}

fn encode(grants: &[SignedGrant]) -> Vec<u8> {
    grants.iter().flat_map(|grant| (grant.text() + "\0").into_bytes()).collect()
}
