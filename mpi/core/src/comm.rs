//! The communicators of a process: what each is, and the questions that need no communication.

use crate::attributes::Attributes;
use crate::identity::{Identity, Refusal};
use crate::lane::{Lane, Purpose};
use crate::{Comparison, CoreError, ErrorHandler, Group, Raised};
use ironweave_btl::Peer;
use ironweave_coll::Context;
use ironweave_ft::CommKey;
use ironweave_pml::ob1::CommId;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A communicator of this process: slot and generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommHandle {
    slot: u32,
    generation: u32,
}

impl CommHandle {
    /// Names no communicator.
    pub const NONE: CommHandle = CommHandle { slot: u32::MAX, generation: u32::MAX };
}

/// Hints of the user, opaque here. A duplicate has those of its original unless it is given others.
pub type Info = Arc<dyn Any + Send + Sync>;

/// What is interrupted for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Interruption {
    Nothing,
    /// Collectives, because of this.
    Collectives(CoreError),
    /// All but resilient operations.
    Revoked,
}

impl Interruption {
    /// Whether anything is.
    #[inline]
    pub const fn any(&self) -> bool {
        !matches!(self, Interruption::Nothing)
    }

    /// The error of a collective operation.
    pub fn error(&self) -> Option<CoreError> {
        match self {
            Interruption::Nothing => None,
            Interruption::Collectives(error) => Some(error.clone()),
            Interruption::Revoked => Some(CoreError::Revoked),
        }
    }

    /// As a member's part in a creation on the communicator.
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Interruption::Nothing => None,
            Interruption::Collectives(_) => Some(Refusal::Closed),
            Interruption::Revoked => Some(Refusal::Revoked),
        }
    }
}

/// How two communicators relate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommComparison {
    /// The same communicator.
    Identical,
    /// The same processes in the same order, different communicators.
    Congruent,
    /// The same processes in another order.
    Similar,
    /// Different processes.
    Unequal,
}

pub(crate) struct Communicator {
    /// Where the control plane and messages know it by; for an inter-communicator `local` beside it is the communicator of
    /// the own group.
    pub identity: Identity,
    pub local_identity: Option<Identity>,
    pub main: CommId,
    pub local: Option<CommId>,
    pub rank: u32,
    pub group: Group,
    pub remote: Option<Group>,
    /// All processes, for an inter-communicator both groups, in the same order at each member.
    pub joined: Group,
    pub collectives: Context,
    pub interruption: Interruption,
    pub creations: Lane,
    pub recoveries: Lane,
    /// This process has had its last say on creations: they fail from here on.
    pub closed: Option<CoreError>,
    /// The window in which the last id was found: where everybody looks next.
    pub window: u16,
    /// Members known to have failed, in the order in which the user was told of them.
    pub failures: Vec<u32>,
    /// How many of them are acknowledged.
    pub acked: usize,
    /// Operations that need it.
    pub users: u32,
    pub freeing: bool,
    pub name: String,
    pub info: Option<Info>,
    pub attributes: Attributes,
    pub errhandler: ErrorHandler,
}

impl Communicator {
    pub const fn key(&self) -> CommKey {
        CommKey { cid: self.identity.cid, epoch: self.identity.epoch }
    }

    pub const fn lane(&mut self, purpose: Purpose) -> &mut Lane {
        match purpose {
            Purpose::Recover => &mut self.recoveries,
            Purpose::Create => &mut self.creations,
        }
    }

    /// The rank by which an error names this failed process.
    pub fn rank_for_error(&self, process: u32) -> Option<u32> {
        let there = self.remote.as_ref().and_then(|remote| remote.rank_of(process));
        there.or_else(|| self.group.rank_of(process))
    }

    /// The other group, or the own one.
    pub fn peers(&self) -> &Group {
        self.remote.as_ref().unwrap_or(&self.group)
    }

    /// The PML's communicators.
    pub fn contexts(&self) -> impl Iterator<Item = CommId> {
        [Some(self.main), self.local].into_iter().flatten()
    }
}

/// The order of two groups in which both sides of an inter-communicator join them.
pub(crate) fn join(group: &Group, remote: &Group) -> Group {
    match (group.process(0), remote.process(0)) {
        (Some(a), Some(b)) if b < a => remote.union(group),
        _ => group.union(remote),
    }
}

/// The processes of a group as the PML has them.
pub(crate) fn peers(group: &Group) -> Vec<Peer> {
    group.iter().map(Peer).collect()
}

/// All communicators.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Option<Box<Communicator>>>,
    generations: Vec<u32>,
    vacant: Vec<u32>,
}

impl Table {
    pub fn insert(&mut self, comm: Communicator) -> CommHandle {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.generations.push(0);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(Box::new(comm));
        CommHandle { slot, generation: self.generations[slot as usize] }
    }

    pub fn remove(&mut self, handle: CommHandle) -> Option<Box<Communicator>> {
        self.any(handle).ok()?;
        let slot = handle.slot as usize;
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        self.vacant.push(handle.slot);
        self.slots[slot].take()
    }

    /// A communicator that its user has not freed.
    pub fn get(&self, handle: CommHandle) -> Result<&Communicator, CoreError> {
        match self.any(handle) {
            Ok(comm) if !comm.freeing => Ok(comm),
            _ => Err(CoreError::NoSuchComm),
        }
    }

    /// A communicator that may be about to go.
    pub fn any(&self, handle: CommHandle) -> Result<&Communicator, CoreError> {
        let slot = handle.slot as usize;
        if self.generations.get(slot) != Some(&handle.generation) {
            return Err(CoreError::NoSuchComm);
        }
        self.slots[slot].as_deref().ok_or(CoreError::NoSuchComm)
    }

    #[inline]
    pub fn get_mut(&mut self, handle: CommHandle) -> Result<&mut Communicator, CoreError> {
        match self.any_mut(handle) {
            Ok(comm) if !comm.freeing => Ok(comm),
            _ => Err(CoreError::NoSuchComm),
        }
    }

    #[inline]
    pub fn any_mut(&mut self, handle: CommHandle) -> Result<&mut Communicator, CoreError> {
        let slot = handle.slot as usize;
        if self.generations.get(slot) != Some(&handle.generation) {
            return Err(CoreError::NoSuchComm);
        }
        self.slots[slot].as_deref_mut().ok_or(CoreError::NoSuchComm)
    }

    pub fn iter(&self) -> impl Iterator<Item = (CommHandle, &Communicator)> {
        (0..).zip(&self.slots).filter_map(|(slot, comm)| {
            let generation = self.generations[slot as usize];
            Some((CommHandle { slot, generation }, comm.as_deref()?))
        })
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { cid, epoch } = self.identity;
        write!(f, "{} {cid}.{epoch}: rank {} of {:?}", self.name, self.rank, self.group)?;
        if let Some(remote) = &self.remote {
            write!(f, " with {remote:?}")?;
        }
        let (users, freeing) = (self.users, self.freeing);
        write!(f, ", {:?}, closed {:?}, {users} operations", self.interruption, self.closed)?;
        write!(f, "{}", if freeing { ", being freed" } else { "" })
    }
}

impl<B: ironweave_btl::Btl> crate::Core<B> {
    /// The PML's name of a communicator, to which point-to-point operations go directly.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`], as of all questions here.
    pub fn point_to_point(&self, comm: CommHandle) -> Result<CommId, CoreError> {
        Ok(self.comms.get(comm)?.main)
    }

    /// What it is known by on the wire: id and epoch. No two communicators that share a process have the same, ever.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn identity(&self, comm: CommHandle) -> Result<(u16, u16), CoreError> {
        let Identity { cid, epoch } = self.comms.get(comm)?.identity;
        Ok((cid, epoch))
    }

    /// The rank of this process in its own group.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn rank(&self, comm: CommHandle) -> Result<u32, CoreError> {
        Ok(self.comms.get(comm)?.rank)
    }

    /// The own group.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn group(&self, comm: CommHandle) -> Result<&Group, CoreError> {
        Ok(&self.comms.get(comm)?.group)
    }

    /// The remote group of an inter-communicator; `None` for an intra-communicator (which is MPI's `test_inter`).
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn remote_group(&self, comm: CommHandle) -> Result<Option<&Group>, CoreError> {
        Ok(self.comms.get(comm)?.remote.as_ref())
    }

    /// How two communicators relate.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn compare(&self, a: CommHandle, b: CommHandle) -> Result<CommComparison, CoreError> {
        let (one, other) = (self.comms.get(a)?, self.comms.get(b)?);
        if a == b {
            return Ok(CommComparison::Identical);
        }
        let remote = match (&one.remote, &other.remote) {
            (None, None) => Comparison::Identical,
            (Some(one), Some(other)) => one.compare(other),
            _ => Comparison::Unequal,
        };
        Ok(match (one.group.compare(&other.group), remote) {
            (Comparison::Unequal, _) | (_, Comparison::Unequal) => CommComparison::Unequal,
            (Comparison::Identical, Comparison::Identical) => CommComparison::Congruent,
            _ => CommComparison::Similar,
        })
    }

    /// Its name; empty until it is given one.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn name(&self, comm: CommHandle) -> Result<&str, CoreError> {
        Ok(&self.comms.get(comm)?.name)
    }

    /// Names it, for errors and dumps.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn set_name(&mut self, comm: CommHandle, name: &str) -> Result<(), CoreError> {
        self.comms.get_mut(comm)?.name = name.to_owned();
        Ok(())
    }

    /// Its hints.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn info(&self, comm: CommHandle) -> Result<Option<&Info>, CoreError> {
        Ok(self.comms.get(comm)?.info.as_ref())
    }

    /// Gives it other hints.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn set_info(&mut self, comm: CommHandle, info: Option<Info>) -> Result<(), CoreError> {
        self.comms.get_mut(comm)?.info = info;
        Ok(())
    }

    /// Its attributes. To change them clone the table, change that (which may call back), and
    /// [put it back](crate::Core::set_attributes).
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn attributes(&self, comm: CommHandle) -> Result<&Attributes, CoreError> {
        Ok(&self.comms.get(comm)?.attributes)
    }

    /// Replaces its attributes.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn set_attributes(&mut self, comm: CommHandle, table: Attributes) -> Result<(), CoreError> {
        self.comms.get_mut(comm)?.attributes = table;
        Ok(())
    }

    /// Its error handler, which communicators made from it inherit.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn errhandler(&self, comm: CommHandle) -> Result<&ErrorHandler, CoreError> {
        Ok(&self.comms.get(comm)?.errhandler)
    }

    /// Gives it another error handler.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn set_errhandler(
        &mut self,
        comm: CommHandle,
        handler: ErrorHandler,
    ) -> Result<(), CoreError> {
        self.comms.get_mut(comm)?.errhandler = handler;
        Ok(())
    }

    /// What the caller has to do about an error of its call `function`. On a communicator that is not there any more it is the
    /// first one's handler that decides, as the standard has it for errors without a communicator.
    #[must_use]
    pub fn raise(&self, comm: CommHandle, function: &str, error: &dyn Error) -> Raised {
        let there = self.comms.get(comm).or_else(|_| self.comms.get(self.world));
        match there {
            Ok(there) => {
                let name = || match there.name.as_str() {
                    "" => format!("{}.{}", there.identity.cid, there.identity.epoch),
                    name => format!("\"{name}\""),
                };
                there.errhandler.raise(there.rank, name, function, error)
            }
            Err(_) => ErrorHandler::Fatal.raise(self.me.0, || "(none)".to_owned(), function, error),
        }
    }

    /// All communicators that are not freed.
    pub fn communicators(&self) -> impl Iterator<Item = CommHandle> {
        self.comms.iter().filter(|(_, comm)| !comm.freeing).map(|(handle, _)| handle)
    }
}
