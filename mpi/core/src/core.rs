//! The core of one process: the PML, the control plane, the communicators over them, and the operations under way.
//!
//! Knows no clock, thread, socket or file; is handed the time and what is known of failures. One thread at a time.

use crate::assembly::Transients;
use crate::attributes::{Attributes, Keyvals};
use crate::comm::{self, Communicator, Interruption, Table};
use crate::identity::{Identity, Ids};
use crate::lane::{Lane, Purpose};
use crate::late::Late;
use crate::persistent::Persistents;
use crate::summons::{SUMMONS, Summonses};
use crate::task::Tasks;
use crate::{CommHandle, CoreError, ErrorHandler, Group};
use ironweave_btl::{Btl, Peer};
use ironweave_coll::{Context, Place};
use ironweave_ft::{Board, CommKey, Decided, Nanos, Plane};
use ironweave_pml::ob1::{CommSpec, Ob1, PmlError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Rounds of one call of `attend`, at most: each makes messages for others, so nothing is won by more.
const ROUNDS: usize = 8;

/// Calls of `progress` after which deadlines that are further off than [`SOON`] are looked at again.
const PATIENCE: u32 = 1 << 16;
/// A deadline closer than this, in nanoseconds, is waited for with the clock in hand.
const SOON: Nanos = 1_000_000;

/// Settings of one core.
#[derive(Clone, Debug)]
pub struct Config {
    /// This process.
    pub me: Peer,
    /// Processes of the job.
    pub size: u32,
    /// Parameters of collective operations, the same in each process.
    pub collectives: Arc<ironweave_coll::Config>,
    /// Parameters of the control plane.
    pub plane: ironweave_ft::PlaneConfig,
    /// The words of the [`Board`] that the processes of this one's host share.
    pub board: Option<&'static [AtomicU64]>,
    /// The host of each process as a colour, if that is known: equal where the host is, the same list in each process.
    pub hosts: Option<Arc<[u32]>>,
}

/// The stack of one process above its rails.
///
/// Point-to-point operations go to [`pml`](Core::pml) directly, with the names from
/// [`point_to_point`](Core::point_to_point).
pub struct Core<B: Btl> {
    /// Point-to-point.
    pub pml: Ob1<B>,
    /// The control plane.
    pub plane: Plane,
    /// Keys of attributes.
    pub keyvals: Keyvals,
    pub(crate) me: Peer,
    pub(crate) config: Config,
    pub(crate) comms: Table,
    /// By id: the part of a key that is a communicator's.
    pub(crate) by_cid: BTreeMap<u16, CommHandle>,
    pub(crate) ids: Ids,
    pub(crate) tasks: Tasks,
    pub(crate) transients: Transients,
    pub(crate) summonses: Summonses,
    pub(crate) persistents: Persistents,
    pub(crate) world: CommHandle,
    /// Processes that are known for sure to have failed.
    pub(crate) known: BTreeSet<u32>,
    /// Those among them that the owner has not asked for yet, in the order in which they became known.
    pub(crate) fresh: Vec<u32>,
    /// Outcomes of agreements that somebody waits for.
    pub(crate) awaited: Vec<((CommKey, u64), Option<Decision>)>,
    /// Decisions that are returned once what was sent before them is there to be received.
    pub(crate) held: Vec<Decided>,
    /// Control frames for processes whose addresses are wanted.
    unsent: VecDeque<(Peer, Vec<u8>)>,
    wanted: BTreeSet<Peer>,
    pub(crate) freeing: Vec<CommHandle>,
    /// Revoked, without a last say on creations yet.
    pub(crate) unsaid: Vec<CommHandle>,
    /// There is something to do that no arriving message will tell of.
    pub(crate) restless: bool,
    /// Of a failure: others are told with the next progress.
    pub(crate) untold: bool,
    /// Failures that the control plane has still to learn of.
    pub(crate) late: Late,
    /// There are tasks that go on by being looked at.
    pub(crate) stepping: bool,
    /// Others hold this process for failed.
    pub(crate) fenced: bool,
    board: Option<Board<'static>>,
    /// Calls of `progress` until deadlines that are far off are looked at.
    pub(crate) patience: u32,
    /// A deadline is close.
    pub(crate) hurried: bool,
}

/// What an agreement decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    pub flag: u64,
    pub highest: u64,
    pub acknowledged: bool,
    /// Processes.
    pub failed: Vec<u32>,
}

impl<B: Btl> Core<B> {
    /// A core over an engine whose rails are open, with the communicator of all processes and that of this one alone.
    ///
    /// # Errors
    /// Those of [`Ob1::add_comm`], when the engine is not new.
    pub fn new(pml: Ob1<B>, config: Config, now: Nanos) -> Result<Self, CoreError> {
        let mut plane = Plane::new(config.me.0, config.size, config.plane);
        if let (Some(_), Some(hosts)) = (config.board, &config.hosts) {
            let here = hosts.get(config.me.0 as usize);
            let shares = |process: &u32| hosts.get(*process as usize) == here;
            plane.share_board((0..config.size).filter(shares));
        }
        let (me, size) = (config.me, config.size);
        let board = config.board.map(|words| Board::new(words, size));
        let late = Late::nothing(config.hosts.as_deref());
        let mut core = Core {
            board,
            pml,
            plane,
            keyvals: Keyvals::default(),
            me,
            config,
            comms: Table::default(),
            by_cid: BTreeMap::new(),
            ids: Ids::default(),
            tasks: Tasks::default(),
            transients: Transients::default(),
            summonses: Summonses::default(),
            persistents: Persistents::default(),
            world: CommHandle::NONE,
            known: BTreeSet::new(),
            fresh: Vec::new(),
            awaited: Vec::new(),
            held: Vec::new(),
            unsent: VecDeque::new(),
            wanted: BTreeSet::new(),
            freeing: Vec::new(),
            unsaid: Vec::new(),
            restless: false,
            untold: false,
            late,
            stepping: false,
            fenced: false,
            patience: PATIENCE,
            hurried: false,
        };
        let groups = [("world", Group::range(0, size)), ("self", Group::range(me.0, 1))];
        for (cid, (name, group)) in (0..).zip(groups) {
            core.ids.take(cid);
            let identity = Identity { cid, epoch: 0 };
            let handle = core.establish(&[identity], group, None, CommHandle::NONE, now)?;
            core.set_name(handle, name)?;
            if cid == 0 {
                core.world = handle;
            }
        }
        Ok(core)
    }

    /// How often a creation had to try another window of ids: for tests.
    #[doc(hidden)]
    #[must_use]
    pub const fn rounds_repeated(&self) -> u64 {
        self.ids.repeated
    }

    /// What this host's processes share.
    pub(crate) const fn board(&self) -> Option<Board<'static>> {
        self.board
    }

    /// Whether somebody who shares the board has told of something: then call [`hear`](Core::hear). Costs a look at one word.
    #[inline]
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.board.is_some_and(|board| self.plane.is_called(&board))
    }

    /// Takes what others have told by the board, and does what follows from it.
    #[cold]
    pub fn hear(&mut self, now: Nanos) {
        self.hear_board(false);
        self.carry_out(now);
        self.restless = true;
    }

    /// With `full`, whatever is there: before a failure is learned of, for the dead do not call.
    pub(crate) fn hear_board(&mut self, full: bool) {
        if let Some(board) = self.board {
            self.plane.hear(self.tasks.are_some_making(), full, &board);
        }
    }

    /// The communicator of all processes.
    #[must_use]
    pub const fn world(&self) -> CommHandle {
        self.world
    }

    /// The communicator of this process alone.
    #[must_use]
    pub fn myself(&self) -> CommHandle {
        self.by_cid.get(&1).copied().unwrap_or(CommHandle::NONE)
    }

    /// Moves everything that can move; never blocks. Returns how much happened. While there is no news beside messages of
    /// users this is [`Ob1::progress`] and one branch; the clock is not asked.
    #[inline]
    pub fn progress(&mut self, now: impl FnOnce() -> Nanos) -> usize {
        let events = self.pml.progress();
        self.patience = self.patience.wrapping_sub(1);
        // One branch: the operands are cheaper than a second one.
        if self.restless | self.pml.has_control() | (self.patience == 0) {
            return events + self.attend_in_time(now());
        }
        if self.stepping { events + self.step_all(now()) } else { events }
    }

    #[cold]
    fn attend_in_time(&mut self, now: Nanos) -> usize {
        if self.is_late(now) {
            self.wait_for_others();
            return 0;
        }
        self.catch_up(now);
        let untold = std::mem::take(&mut self.untold);
        let attended = self.attend(now);
        // What others are told of a failure goes out within this call: there may be none after it for a while.
        let told = if untold { 1 + self.pml.progress() } else { 0 };
        attended + told
    }

    /// Moves tasks on, and nothing else unless they have something to tell.
    fn step_all(&mut self, now: Nanos) -> usize {
        let ended = self.step_tasks(now);
        self.stepping = self.tasks.are_some_stepping();
        let told = self.restless || self.plane.has_effects() || self.has_unsent();
        if told || !self.freeing.is_empty() { ended + self.attend(now) } else { ended }
    }

    /// When [`progress`](Core::progress) is to be called again though nothing arrives; `None`: never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.plane.next_deadline().into_iter().chain(self.late.until()).min()
    }

    /// Whether an operation is under way that goes on with each call of [`progress`](Core::progress).
    #[must_use]
    pub const fn is_restless(&self) -> bool {
        self.restless | self.stepping
    }

    /// Whether the time that [`progress`](Core::progress) is given has to be exact: else some milliseconds of delay do no harm.
    #[inline]
    #[must_use]
    pub const fn is_hurried(&self) -> bool {
        self.hurried
    }

    /// Processes whose addresses are wanted since the last call: give them to [`Ob1::add_peer`], or have them judged.
    pub fn take_wanted(&mut self) -> impl Iterator<Item = Peer> + use<B> {
        std::mem::take(&mut self.wanted).into_iter()
    }

    /// Processes that became known to have failed since the last call, from whatever source, in that order.
    pub fn take_failures(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.fresh)
    }

    /// Whether [`take_wanted`](Core::take_wanted) or [`take_failures`](Core::take_failures) has something to give.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.wanted.is_empty() || !self.fresh.is_empty()
    }

    pub(crate) fn want(&mut self, peer: Peer) {
        self.wanted.insert(peer);
    }

    /// Everything but plain messages.
    #[cold]
    pub(crate) fn attend(&mut self, now: Nanos) -> usize {
        self.catch_up(now);
        let mut moved = 0;
        let mut more = true;
        for _ in 0..ROUNDS {
            moved += self.take_controls(now);
            self.have_last_says(now);
            if self.plane.next_deadline().is_some_and(|deadline| deadline <= now) {
                self.plane.tick(now);
                // What goes out by this may take another call to leave.
                moved += usize::from(self.plane.has_effects());
            }
            moved += self.carry_out(now);
            let ended = self.step_tasks(now) + self.sweep(now);
            if self.plane.is_behind() && !self.tasks.are_some_making() {
                self.hear_board(false);
            }
            // What tasks have begun goes out at once.
            let begun = if self.plane.has_effects() { self.carry_out(now) } else { 0 };
            moved += ended + begun;
            more = begun > 0 || (ended > 0 && !self.tasks.are_none()) || self.pml.has_control();
            if !more {
                break;
            }
        }
        let within = |time: Nanos| move |deadline| deadline <= now.saturating_add(time);
        let deadline = self.plane.next_deadline();
        self.hurried = deadline.is_some_and(within(10 * SOON));
        self.stepping = self.tasks.are_some_stepping();
        self.restless = more
            || !(self.tasks.are_quiet() && self.unsent.is_empty() && self.freeing.is_empty())
            || !self.held.is_empty()
            || deadline.is_some_and(within(SOON));
        self.patience = PATIENCE;
        moved
    }

    /// Takes what came on the control channel; how much that was.
    pub(crate) fn take_controls(&mut self, now: Nanos) -> usize {
        let mut taken = 0;
        while let Some((peer, frame)) = self.pml.take_control() {
            match frame.first() {
                Some(&SUMMONS) => self.on_summons(peer, &frame, now),
                _ => self.plane.receive(peer.0, &frame, now),
            }
            taken += 1;
        }
        taken
    }

    /// Gives a control frame to the PML, after those that wait for addresses.
    pub(crate) fn send_control(&mut self, peer: Peer, frame: &[u8]) {
        if self.has_unsent() && self.unsent.iter().any(|&(other, _)| other == peer) {
            return self.unsent.push_back((peer, frame.to_vec()));
        }
        match self.pml.send_control(peer, frame) {
            Ok(()) => {
                if !self.plane.is_outlived(peer.0) && self.pml.is_control_lossless(peer) {
                    self.plane.outlives_sender(peer.0);
                }
            }
            Err(PmlError::Unresolved(peer)) => {
                self.want(peer);
                self.unsent.push_back((peer, frame.to_vec()));
            }
            Err(error) => tracing::error!(%peer, %error, "control frame dropped"),
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Tries again what waited for addresses. Frames for one process stay in order: all of them wait, or none.
    pub(crate) fn send_unsent(&mut self) -> usize {
        let mut sent = 0;
        for (peer, frame) in std::mem::take(&mut self.unsent) {
            match self.pml.send_control(peer, &frame) {
                Err(PmlError::Unresolved(_)) => {
                    self.want(peer);
                    self.unsent.push_back((peer, frame));
                }
                _ => sent += 1,
            }
        }
        sent
    }

    /// Makes a communicator of which everything is decided.
    pub(crate) fn establish(
        &mut self,
        identities: &[Identity],
        group: Group,
        remote: Option<Group>,
        parent: CommHandle,
        now: Nanos,
    ) -> Result<CommHandle, CoreError> {
        let rank = group.rank_of(self.me.0).ok_or(CoreError::Argument("not a member"))?;
        let identity = identities[0];
        let members = comm::peers(&group);
        let main = self.pml.add_comm(CommSpec {
            cid: identity.cid,
            epoch: identity.epoch,
            rank,
            group: members.clone(),
            remote: remote.as_ref().map(comm::peers),
        })?;
        let local_identity = identities.get(1).copied();
        let local = match local_identity {
            Some(Identity { cid, epoch }) => {
                Some(self.pml.add_comm(CommSpec::intra(cid, epoch, rank, members))?)
            }
            None => None,
        };
        let place = match &remote {
            Some(remote) => Place::inter(rank, group.len(), remote.len()),
            None => self.place(rank, &group),
        };
        let config = Arc::clone(&self.config.collectives);
        let joined = remote.as_ref().map_or_else(|| group.clone(), |r| comm::join(&group, r));
        let (errhandler, info, window) = match self.comms.any(parent) {
            Ok(there) => (there.errhandler.clone(), there.info.clone(), there.window),
            Err(_) => (ErrorHandler::default(), None, 0),
        };
        let handle = self.comms.insert(Communicator {
            identity,
            local_identity,
            main,
            local,
            rank,
            group,
            remote,
            joined: joined.clone(),
            collectives: Context::new(main, local, place, config),
            interruption: Interruption::Nothing,
            creations: Lane::default(),
            recoveries: Lane::default(),
            closed: None,
            window,
            failures: Vec::new(),
            acked: 0,
            users: 0,
            freeing: false,
            name: String::new(),
            info,
            attributes: Attributes::default(),
            errhandler,
        });
        self.by_cid.insert(identity.cid, handle);
        let key = CommKey { cid: identity.cid, epoch: identity.epoch };
        let members = members_for_plane(&joined, self.config.size);
        for purpose in Purpose::ALL {
            self.plane.add_comm(purpose.key(key), members.clone(), now);
        }
        self.restless = true; // notices that came before may wait in the plane
        self.inherit_failures(handle);
        Ok(handle)
    }

    fn place(&self, rank: u32, group: &Group) -> Place {
        let place = Place::intra(rank, group.len());
        let Some(hosts) = &self.config.hosts else { return place };
        let colours: Option<Vec<u32>> =
            group.iter().map(|process| hosts.get(process as usize).copied()).collect();
        match colours.map(|colours| place.clone().with_hosts(&colours)) {
            Some(Ok(place)) => place,
            _ => place,
        }
    }

    /// Frees a communicator: no new operation is accepted, those under way go on, and when they are over it goes. Attributes are
    /// the caller's to delete first (their callbacks may refuse). Local; never blocks.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn free(&mut self, comm: CommHandle) -> Result<(), CoreError> {
        self.comms.get_mut(comm)?.freeing = true;
        self.freeing.push(comm);
        self.restless = true;
        Ok(())
    }

    /// Ends communicators that were freed and are not needed any more.
    fn sweep(&mut self, now: Nanos) -> usize {
        let mut ended = 0;
        if !self.freeing.is_empty() {
            self.have_last_says(now);
        }
        for comm in std::mem::take(&mut self.freeing) {
            let Ok(there) = self.comms.any(comm) else { continue };
            let busy = there.users > 0 || there.contexts().any(|id| self.pml.open_requests(id) > 0);
            if busy {
                self.freeing.push(comm);
                continue;
            }
            let Some(there) = self.comms.remove(comm) else { continue };
            there.contexts().for_each(|id| self.pml.free_comm(id));
            for purpose in Purpose::ALL {
                self.plane.free_comm(purpose.key(there.key()), now);
            }
            self.by_cid.remove(&there.identity.cid);
            self.ids.release(there.identity);
            if let Some(local) = there.local_identity {
                self.ids.release(local);
            }
            ended += 1;
        }
        ended
    }

    /// A few lines about communicators and operations, for watchdogs.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn dump(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(out, "core of {}: known to have failed: {:?}", self.me, self.known)?;
        for (_, comm) in self.comms.iter() {
            writeln!(out, "  {comm:?}")?;
        }
        for (name, on) in self.running() {
            let on = self.comms.any(on).map_or(u16::MAX, |comm| comm.identity.cid);
            writeln!(out, "  under way: {name} on {on}")?;
        }
        for (key, decided) in &self.awaited {
            writeln!(out, "  awaited: {key:?}: {decided:?}")?;
        }
        writeln!(out, "  {} control frames wait for addresses", self.unsent.len())?;
        self.pml.dump(out)
    }
}

/// A group as the control plane has it.
pub(crate) fn members_for_plane(group: &Group, size: u32) -> ironweave_ft::Group {
    if *group == Group::range(0, size) {
        ironweave_ft::Group::world(size)
    } else {
        ironweave_ft::Group::new(group.iter().collect())
    }
}
