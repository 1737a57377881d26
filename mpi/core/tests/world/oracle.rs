//! What must be true of all processes together: uniform creations and agreements (law 7), identities that are never shared
//! (law 4), barriers that hold.

use super::{Stack, Summary};
use ironweave_core::{CommHandle, CoreError, Group, Output};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One call of all members of a communicator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// (cid, epoch) and first member: groups with the same identity have no member in common.
    comm: (u16, u16, u32),
    kind: usize,
    number: u32,
}

impl Instance {
    pub fn new(core: &Stack, comm: CommHandle, kind: usize, number: u32) -> Self {
        let (cid, epoch) = core.identity(comm).expect("a communicator in use");
        let first = core.group(comm).ok().and_then(|group| group.process(0)).unwrap_or(u32::MAX);
        let other = core.remote_group(comm).ok().flatten().and_then(|group| group.process(0));
        let first = first.min(other.unwrap_or(u32::MAX));
        Instance { comm: (cid, epoch, first), kind, number }
    }

    /// Makes data of different calls different.
    pub fn salt(&self) -> u64 {
        u64::from(self.comm.0) << 40 ^ u64::from(self.comm.1) << 20 ^ u64::from(self.number)
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            "creation",
            "collective",
            "recovery",
            "creation by members",
            "",
            "of an inter",
            "meeting",
        ];
        let kind = kinds.get(self.kind).unwrap_or(&"?");
        let (cid, epoch, first) = self.comm;
        write!(f, "{kind} {} on {cid}.{epoch} of {first} …", self.number)
    }
}

#[derive(Default)]
struct Creation {
    /// Whether it succeeded, and who said so first.
    outcome: Option<(bool, u32)>,
}

#[derive(Default)]
struct Agreement {
    contributed: BTreeMap<u32, u64>,
    outcome: Option<(u64, Option<CoreError>)>,
}

/// An identity, and the first process that has it.
type Named = ((u16, u16), Option<u32>);

pub struct Oracle {
    alive: Vec<bool>,
    creations: BTreeMap<Instance, Creation>,
    agreements: BTreeMap<Instance, Agreement>,
    entered: BTreeMap<Instance, BTreeSet<u32>>,
    /// Who has an identity: which creation made it, and for whom.
    identities: BTreeMap<(u16, u16), Vec<(Instance, Group)>>,
    /// The two groups of inter-communicators.
    pairs: BTreeMap<Named, (Group, Group)>,
    errors: usize,
}

impl Oracle {
    pub fn new(ranks: u32) -> Self {
        Oracle {
            alive: vec![true; ranks as usize],
            creations: BTreeMap::new(),
            agreements: BTreeMap::new(),
            entered: BTreeMap::new(),
            identities: BTreeMap::new(),
            pairs: BTreeMap::new(),
            errors: 0,
        }
    }

    pub fn is_alive(&self, process: u32) -> bool {
        self.alive[process as usize]
    }

    pub fn died(&mut self, process: u32) {
        self.alive[process as usize] = false;
    }

    /// A creation (or shrink) has ended at `me`.
    pub fn made(
        &mut self,
        me: u32,
        core: &Stack,
        instance: Instance,
        outcome: &Result<Output, CoreError>,
    ) -> Result<(), String> {
        self.errors += usize::from(outcome.is_err());
        let creation = self.creations.entry(instance.clone()).or_default();
        match creation.outcome {
            Some((good, who)) if good != outcome.is_ok() => {
                return Err(format!(
                    "law 7: {instance:?} is {good} at {who}, but here {outcome:?}"
                ));
            }
            None => creation.outcome = Some((outcome.is_ok(), me)),
            _ => {}
        }
        let Ok(Output::Comm(Some(comm))) = outcome else { return Ok(()) };
        let group = core.group(*comm).map_err(|error| error.to_string())?.clone();
        if !group.contains(me) {
            return Err(format!("{instance:?}: made for {group:?}"));
        }
        let identity = core.identity(*comm).map_err(|error| error.to_string())?;
        let same = self.identities.entry(identity).or_default();
        let inter = core.remote_group(*comm).map_err(|error| error.to_string())?.is_some();
        for (other, members) in same.iter() {
            // Both groups of an inter-communicator have its identity.
            if *other == instance && (*members == group || inter) {
                continue;
            }
            // What the dead had disturbs nobody: their part in the choice may have been lost with them.
            if members.intersection(&group).iter().any(|process| self.alive[process as usize]) {
                return Err(format!(
                    "{instance:?} makes {identity:?} for {group:?}, {other:?} for {members:?}"
                ));
            }
        }
        if !same.contains(&(instance.clone(), group.clone())) {
            same.push((instance, group));
        }
        Ok(())
    }

    /// The groups of an inter-communicator are apart, and both sides see the same two.
    pub fn joined(&mut self, core: &Stack, inter: CommHandle) -> Result<(), String> {
        let text = |error: CoreError| error.to_string();
        let group = core.group(inter).map_err(text)?.clone();
        let remote = core.remote_group(inter).map_err(text)?.ok_or("it is an intra")?.clone();
        if !group.intersection(&remote).is_empty() {
            return Err(format!("{group:?} and {remote:?} overlap"));
        }
        let identity = core.identity(inter).map_err(text)?;
        let pair =
            if group.process(0) < remote.process(0) { (group, remote) } else { (remote, group) };
        let key = (identity, pair.0.process(0).or(pair.1.process(0)));
        let known = self.pairs.entry(key).or_insert_with(|| pair.clone());
        if *known == pair { Ok(()) } else { Err(format!("{known:?} elsewhere, {pair:?} here")) }
    }

    /// The merged communicator has the group that was not high first.
    pub fn merged(
        &self,
        core: &Stack,
        inter: CommHandle,
        merged: CommHandle,
        half: u32,
    ) -> Result<(), String> {
        let text = |error: CoreError| error.to_string();
        let group = core.group(inter).map_err(text)?;
        let remote = core.remote_group(inter).map_err(text)?.ok_or("it is an intra")?;
        let expected = if half == 0 { group.union(remote) } else { remote.union(group) };
        let merged = core.group(merged).map_err(text)?;
        if *merged == expected { Ok(()) } else { Err(format!("merged to {merged:?}")) }
    }

    pub fn entered(&mut self, me: u32, instance: &Instance) {
        self.entered.entry(instance.clone()).or_default().insert(me);
    }

    /// A barrier has let somebody pass.
    pub fn passed(
        &self,
        core: &Stack,
        comm: CommHandle,
        instance: &Instance,
    ) -> Result<(), String> {
        let group = core.group(comm).map_err(|error| error.to_string())?;
        let entered = self.entered.get(instance);
        match group.iter().find(|process| !entered.is_some_and(|e| e.contains(process))) {
            Some(missing) => Err(format!("{instance:?} did not wait for {missing}")),
            None => Ok(()),
        }
    }

    pub fn contributed(&mut self, me: u32, instance: &Instance, flag: u64) {
        self.agreements.entry(instance.clone()).or_default().contributed.insert(me, flag);
    }

    pub fn agreed(
        &mut self,
        me: u32,
        instance: &Instance,
        flag: u64,
        failure: Option<CoreError>,
    ) -> Result<(), String> {
        let Some(agreement) = self.agreements.get_mut(instance) else {
            return Err(format!("{instance:?}: nobody has contributed"));
        };
        let now = (flag, failure);
        if let Some(before) = &agreement.outcome
            && *before != now
        {
            return Err(format!("law 7: {instance:?} is {before:?} elsewhere, {now:?} here"));
        }
        let own = agreement.contributed.get(&me).copied().unwrap_or(0);
        let least = agreement.contributed.values().fold(!0, |all, flag| all & flag);
        let living = agreement.contributed.iter().filter(|(p, _)| self.alive[**p as usize]);
        let most = living.fold(own, |all, (_, flag)| all & flag);
        if flag & !most != 0 || least & !flag != 0 {
            return Err(format!("{instance:?}: {flag:#x} is not between {least:#x} and {most:#x}"));
        }
        agreement.outcome = Some(now);
        Ok(())
    }

    pub fn summary(&self) -> Summary {
        Summary {
            made: self.identities.values().map(Vec::len).sum(),
            errors: self.errors,
            agreed: self.agreements.len(),
            ..Summary::default()
        }
    }
}
