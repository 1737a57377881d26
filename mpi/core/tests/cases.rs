//! Single cases in virtual time that random worlds meet rarely: interruptions at every moment of a creation, creations in
//! different orders, members that never call, and what acknowledging failures does to agreements.

#![allow(unsafe_code)] // lends a buffer that it owns to a collective

use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};
use ironweave_btl::{Address, Btl, Counters, Peer};
use ironweave_btl_sim::{RailModel, SimBtl, SimFault, SimNet};
use ironweave_coll::{Call, Memory, Root};
use ironweave_core::{Attributes, CommHandle, Config, Core, CoreError, Group, Output, TaskId};
use ironweave_ft::{Board, PlaneConfig};
use ironweave_pml::ob1::{Config as PmlConfig, Ob1, PmlError, Source, TagMatch};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[path = "cases/rounds.rs"]
mod rounds;

/// Some processes on one simulated network.
struct Cluster {
    net: SimNet,
    cores: Vec<Option<Core<SimBtl>>>,
    addresses: Vec<Vec<Address>>,
    counters: Vec<Arc<Counters>>,
    /// They are on one host and share a board.
    board: bool,
}

type Outcome = Result<Output, CoreError>;

impl Cluster {
    fn new(size: u32, seed: u64) -> Self {
        Self::with(size, seed, None)
    }

    /// All on one host, with a board.
    fn on_a_host(size: u32, seed: u64) -> Self {
        let words = (0..Board::words(size, 2)).map(|_| AtomicU64::new(0));
        // A core keeps them as long as its process runs.
        Self::with(size, seed, Some(words.collect::<Vec<_>>().leak()))
    }

    fn with(size: u32, seed: u64, board: Option<&'static [AtomicU64]>) -> Self {
        let net = SimNet::new(seed);
        let (mut addresses, mut counters) = (Vec::new(), Vec::new());
        let hosts: Option<Arc<[u32]>> = board.map(|_| vec![0; size as usize].into());
        let cores = (0..size).map(|me| {
            let mut pml = Ob1::new(PmlConfig::new(Peer(me)));
            let rail = net.open(Peer(me), &RailModel::tcp());
            counters.push(rail.counters());
            pml.add_btl(rail);
            addresses.push(pml.addresses());
            let plane = PlaneConfig { fail_stop: board.is_some(), ..PlaneConfig::default() };
            let (collectives, hosts) = (Arc::default(), hosts.clone());
            let config = Config { me: Peer(me), size, collectives, plane, board, hosts };
            Some(Core::new(pml, config, 0).expect("a new engine"))
        });
        let cores = cores.collect();
        Cluster { net, cores, addresses, counters, board: board.is_some() }
    }

    fn now(&self) -> u64 {
        self.net.now_ns()
    }

    fn core(&mut self, me: u32) -> &mut Core<SimBtl> {
        self.cores[me as usize].as_mut().expect("it lives")
    }

    fn living(&self) -> Vec<u32> {
        (0..).zip(&self.cores).filter(|(_, core)| core.is_some()).map(|(me, _)| me).collect()
    }

    /// Everybody who lives does this.
    fn all<R>(&mut self, mut act: impl FnMut(&mut Core<SimBtl>, u32, u64) -> R) -> Vec<R> {
        let now = self.now();
        self.living().into_iter().map(|me| act(self.core(me), me, now)).collect()
    }

    /// Lets processes run for so many turns, or until nothing moves any more.
    fn turns(&mut self, turns: usize) {
        for me in self.living() {
            self.net.wake_at(Peer(me), self.now());
        }
        for _ in 0..turns {
            let Some(Peer(me)) = self.net.next_ready() else { return };
            let now = self.now();
            let Some(core) = self.cores[me as usize].as_mut() else { continue };
            let mut moved = false;
            for _ in 0..100 {
                if core.is_called() {
                    core.hear(now);
                }
                let mut round = core.progress(|| now);
                for peer in core.take_wanted().collect::<Vec<_>>() {
                    let addresses = &self.addresses[peer.index()];
                    core.pml.add_peer(peer, addresses).expect("one network");
                    round += 1;
                }
                moved |= round > 0;
                if round == 0 {
                    break;
                }
            }
            // Nothing tells of what is posted on the board but looks.
            let looks = (self.board && core.is_restless()).then_some(now + 5_000);
            let soon = moved.then_some(now + 300).or(looks);
            let deadline = core.next_deadline().filter(|&at| at < now + 1_000_000_000);
            if let Some(at) = soon.into_iter().chain(deadline).min() {
                self.net.wake_at(Peer(me), at.max(now + 1));
            }
        }
    }

    /// Until nothing moves any more.
    fn settle(&mut self) {
        self.turns(1_000_000);
    }

    /// Kills a process, and tells the one before it on the ring.
    fn kill(&mut self, victim: u32) {
        self.net.fault(SimFault::Kill(Peer(victim)));
        self.cores[victim as usize] = None;
        let (now, living) = (self.now(), self.living());
        let before = living.iter().rev().find(|&&me| me < victim).or(living.last());
        let before = *before.expect("somebody is left");
        self.core(before).proc_failed(victim, now);
    }

    /// The outcomes of one task of each of these.
    fn outcomes(&mut self, tasks: &[(u32, TaskId)]) -> Vec<Outcome> {
        let living = self.living();
        let tasks = tasks.iter().filter(|(me, _)| living.contains(me));
        let tasks: Vec<_> = tasks.copied().collect();
        let of = |(me, task): (u32, TaskId)| {
            self.core(me).test(task).unwrap_or_else(|| {
                let mut dump = String::new();
                let _ = self.core(me).dump(&mut dump);
                panic!("process {me} waits for ever:\n{dump}")
            })
        };
        tasks.into_iter().map(of).collect()
    }

    /// All members got it, or none.
    fn uniform(&mut self, tasks: &[(u32, TaskId)]) -> bool {
        self.made(tasks).is_some()
    }

    /// The communicators that all members got; `None` when all got an error.
    fn made(&mut self, tasks: &[(u32, TaskId)]) -> Option<Vec<CommHandle>> {
        let outcomes = self.outcomes(tasks);
        let good = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert!(good == 0 || good == outcomes.len(), "{outcomes:?}");
        (good > 0).then(|| outcomes.iter().map(comm_of).collect())
    }
}

fn none() -> Result<Attributes, CoreError> {
    Ok(Attributes::default())
}

fn comm_of(outcome: &Outcome) -> CommHandle {
    match outcome {
        Ok(Output::Comm(Some(comm))) => *comm,
        other => panic!("not a communicator: {other:?}"),
    }
}

/// What Open MPI 5.0.11 crashes in, 12 times of 12 (FACTS.md §2).
#[test]
fn a_revoke_at_any_moment_of_a_creation_ends_it_everywhere_or_nowhere() {
    let (mut made, mut ended) = (0, 0);
    for split in [false, true] {
        for turns in 0..120 {
            let mut cluster = Cluster::new(7, turns);
            // Process 6 never calls; it revokes instead, or comes late.
            let late = turns % 2 == 0;
            let mut tasks: Vec<(u32, TaskId)> = Vec::new();
            let mut start = |cluster: &mut Cluster, me: u32| {
                let (now, core) = (cluster.now(), cluster.core(me));
                let world = core.world();
                let task = if split {
                    core.isplit(world, Some(me % 2), 0, now)
                } else {
                    core.idup(world, none(), None, now)
                };
                tasks.push((me, task.expect("world is there")));
            };
            (0..6).for_each(|me| start(&mut cluster, me));
            if late {
                cluster.turns(turns as usize);
                start(&mut cluster, 6);
            }
            cluster.turns(turns as usize);
            let now = cluster.now();
            let core = cluster.core(6);
            core.revoke(core.world(), now).expect("world is there");
            cluster.settle();
            if cluster.uniform(&tasks) {
                assert!(late, "without one member nothing can be made");
                made += 1;
            } else {
                ended += 1;
            }
            assert!(
                cluster
                    .all(|core, _, _| core.is_revoked(core.world()))
                    .iter()
                    .all(|r| *r == Ok(true))
            );
            // What is left works.
            let shrinks =
                cluster.all(|core, me, now| (me, core.ishrink(core.world(), now).expect("there")));
            cluster.settle();
            for outcome in cluster.outcomes(&shrinks) {
                comm_of(&outcome);
            }
        }
    }
    println!("{made} made, {ended} ended");
    assert!(made > 10 && ended > 10);
}

/// The board has eight places for what a process revokes until the others have heard it; what follows goes by messages. All hear what one
/// hears, also when the teller dies meanwhile.
#[test]
fn what_finds_no_place_on_the_board_is_told_by_messages() {
    let mut lost = 0;
    for turns in 0..24 {
        let dies = turns > 0;
        let mut cluster = Cluster::on_a_host(3, 1);
        let mut comms: Vec<Vec<CommHandle>> = Vec::new();
        for _ in 0..12 {
            let dups = cluster.all(|core, me, now| {
                (me, core.idup(core.world(), none(), None, now).expect("world is there"))
            });
            cluster.settle();
            comms.push(cluster.outcomes(&dups).iter().map(comm_of).collect());
        }
        let sent = |cluster: &Cluster| cluster.counters[0].frames_sent.get();
        let before = sent(&cluster);
        // The others compute meanwhile.
        for (nth, comm) in comms.iter().enumerate() {
            let now = cluster.now();
            cluster.core(0).revoke(comm[0], now).expect("in use");
            assert_eq!(sent(&cluster) > before, nth >= 8, "revocation {nth}");
        }
        for me in [1, 2] {
            let unknown = comms
                .iter()
                .all(|comm| cluster.core(me).is_revoked(comm[me as usize]) == Ok(false));
            assert!(unknown, "process {me} has not looked");
        }
        if dies {
            cluster.turns(turns);
            cluster.kill(0);
        }
        cluster.settle();
        for (nth, comm) in comms.iter().enumerate() {
            let revoked = cluster.all(|core, me, _| core.is_revoked(comm[me as usize]));
            // What was on its way when its teller died may have been lost: then nobody heard.
            lost += usize::from(revoked.iter().all(|revoked| *revoked == Ok(false)));
            let all = revoked.iter().all(|other| other == &revoked[0]);
            assert!(all && (revoked[0] == Ok(true) || dies && nth >= 8), "{nth}: {revoked:?}");
        }
        // There are places again.
        let dups: Vec<_> = cluster.all(|core, me, now| {
            let parent = core.world();
            if dies {
                (me, core.ishrink(parent, now).expect("there"))
            } else {
                (me, core.idup(parent, none(), None, now).expect("there"))
            }
        });
        cluster.settle();
        let living = cluster.living();
        let last: Vec<CommHandle> = cluster.outcomes(&dups).iter().map(comm_of).collect();
        let (teller, before) = (living[0], cluster.counters[living[0] as usize].frames_sent.get());
        let now = cluster.now();
        cluster.core(teller).revoke(last[0], now).expect("in use");
        assert_eq!(cluster.counters[teller as usize].frames_sent.get(), before, "by the board");
        cluster.settle();
        for (&me, &comm) in living.iter().zip(&last) {
            assert_eq!(cluster.core(me).is_revoked(comm), Ok(true));
        }
    }
    assert!(lost > 0 && lost < 23 * 4, "deaths before, in and after the telling: {lost}");
}

#[test]
fn a_death_at_any_moment_of_a_creation_is_the_same_for_all() {
    let (mut made, mut ended) = (0, 0);
    for turns in 0..150 {
        let mut cluster = Cluster::new(6, turns);
        let tasks = cluster.all(|core, me, now| {
            let task = match turns % 3 {
                0 => core.idup(core.world(), none(), None, now),
                1 => core.isplit(core.world(), Some(0), -(me as i32), now),
                _ => core.icreate_group(core.world(), &Group::range(0, 6), 3, now),
            };
            (me, task.expect("world is there"))
        });
        cluster.turns(turns as usize);
        cluster.kill(turns as u32 % 6);
        cluster.settle();
        if cluster.uniform(&tasks) { made += 1 } else { ended += 1 }
    }
    println!("{made} made, {ended} ended");
    assert!(made > 10 && ended > 10);
}

#[test]
fn one_progress_after_a_failure_tells_the_others() {
    let mut cluster = Cluster::new(8, 6);
    // Whoever tells others of this one has connections to them then.
    cluster.kill(6);
    cluster.settle();
    cluster.kill(5);
    let now = cluster.now();
    let told = |cluster: &mut Cluster| cluster.all(|core, _, _| core.is_failed(5));
    assert_eq!(told(&mut cluster).iter().filter(|told| **told).count(), 1, "process 4 alone");
    cluster.core(4).progress(|| now);
    // It computes from now on.
    let computes = cluster.cores[4].take();
    cluster.settle();
    assert_eq!(told(&mut cluster), [true; 5]);
    drop(computes);
}

#[test]
fn who_never_calls_create_group_holds_nobody_up_after_a_failure_or_a_revoke() {
    for revoke in [false, true] {
        let mut cluster = Cluster::new(8, 5);
        let group = Group::of([1, 3, 5, 7]).expect("distinct");
        // 5 is off to somewhere else.
        let mut tasks = Vec::new();
        for me in [1, 3, 7] {
            let (now, core) = (cluster.now(), cluster.core(me));
            let task = core.icreate_group(core.world(), &group, 0, now).expect("world is there");
            tasks.push((me, task));
        }
        cluster.settle();
        assert!(tasks.iter().all(|&(me, task)| !cluster.core(me).is_over(task)));
        if revoke {
            let now = cluster.now();
            let core = cluster.core(0);
            core.revoke(core.world(), now).expect("world is there");
        } else {
            // Of no concern to the group: nothing happens.
            cluster.kill(2);
            cluster.settle();
            assert!(tasks.iter().all(|&(me, task)| !cluster.core(me).is_over(task)));
            cluster.kill(7);
        }
        cluster.settle();
        assert!(!cluster.uniform(&tasks));
        let now = cluster.now();
        let core = cluster.core(5);
        let late = core.icreate_group(core.world(), &group, 0, now).expect("world is there");
        cluster.settle();
        assert!(!cluster.uniform(&[(5, late)]));
    }
}

/// Who learns of a failure and calls nothing but `progress` from then on refuses when it is asked, whether the others called before the failure,
/// or after it.
#[test]
fn who_never_calls_a_creation_holds_nobody_up_after_a_failure() {
    for before in [false, true] {
        for split in [false, true] {
            let mut cluster = Cluster::new(7, 9);
            let call = |cluster: &mut Cluster, me: u32| {
                let (now, core) = (cluster.now(), cluster.core(me));
                let parent = core.world();
                let task = if split {
                    core.isplit(parent, Some(0), 0, now)
                } else {
                    core.idup(parent, none(), None, now)
                };
                (me, task.expect("world is there"))
            };
            let mut tasks: Vec<(u32, TaskId)> = Vec::new();
            if before {
                tasks.extend((0..4).map(|me| call(&mut cluster, me)));
                cluster.settle();
                assert!(tasks.iter().all(|&(me, task)| !cluster.core(me).is_over(task)));
            }
            cluster.kill(6);
            cluster.settle();
            if !before {
                tasks.extend((0..4).map(|me| call(&mut cluster, me)));
                cluster.settle();
            }
            for &(me, task) in &tasks {
                assert!(
                    cluster.core(me).is_over(task),
                    "{me} waits for 4 and 5, called before: {before}"
                );
            }
            assert!(!cluster.uniform(&tasks));
            let late = call(&mut cluster, 5);
            cluster.settle();
            assert!(!cluster.uniform(&[late]));
        }
    }
}

/// Many wait for one that never calls, and one of them dies: all are told along a graph, not by everybody. With
/// `IRONWEAVE_CORE_SIM_BUDGET` thousands.
#[test]
fn a_failure_in_create_group_costs_each_member_log_n_messages() {
    let many = std::env::var_os("IRONWEAVE_CORE_SIM_BUDGET").map(|_| 4096);
    for size in [10, 40].into_iter().chain(many) {
        let mut cluster = Cluster::new(size, 11);
        let members: Vec<u32> = (0..size).filter(|me| me % 3 > 0).collect();
        let group = Group::of(members.clone()).expect("distinct");
        let (absent, victim) = (members[members.len() / 2], members[members.len() / 3]);
        let mut tasks = Vec::new();
        for &me in members.iter().filter(|&&me| me != absent) {
            let (now, core) = (cluster.now(), cluster.core(me));
            let task = core.icreate_group(core.world(), &group, 0, now).expect("world is there");
            tasks.push((me, task));
        }
        cluster.settle();
        assert!(tasks.iter().all(|&(me, task)| !cluster.core(me).is_over(task)));
        cluster.kill(victim);
        let others: Vec<_> = tasks.iter().copied().filter(|&(me, _)| me != victim).collect();
        for _ in 0..40 {
            cluster.settle();
            if others.iter().all(|&(me, task)| cluster.core(me).is_over(task)) {
                break;
            }
        }
        assert!(!cluster.uniform(&others));
        let sent: u64 = cluster.all(|core, _, _| core.summonses_sent()).into_iter().sum();
        let levels = members.len().next_power_of_two().ilog2();
        // Whoever had told the dead one tells its replacement, too.
        let most = (members.len() as u64 + 1) * u64::from(levels);
        println!("{size} processes, {} members: {sent} summonses of at most {most}", members.len());
        assert!(sent <= most && sent > 0);
    }
}

#[test]
fn creations_on_different_parents_go_in_any_order() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(5, seed);
        let first = cluster.all(|core, me, now| {
            (me, core.idup(core.world(), none(), None, now).expect("world is there"))
        });
        cluster.settle();
        let parents: Vec<CommHandle> = cluster.outcomes(&first).iter().map(comm_of).collect();
        // Each process begins six creations on each of two parents at once, in an order of its own, as its threads might.
        let mut tasks = Vec::new();
        for me in 0..5 {
            let (now, parent) = (cluster.now(), parents[me as usize]);
            let core = cluster.core(me);
            let mut order: Vec<(usize, CommHandle)> = Vec::new();
            for number in 0..6 {
                let both = [(2 * number, core.world()), (2 * number + 1, parent)];
                order.extend(if (u64::from(me) + seed) % 2 == 0 {
                    both
                } else {
                    [both[1], both[0]]
                });
            }
            if me == 3 {
                order.sort_by_key(|&(number, _)| (number % 2, number));
            }
            for (number, comm) in order {
                let task = core.idup(comm, none(), None, now).expect("there");
                tasks.push((number, me, task));
            }
            cluster.turns(20);
        }
        cluster.settle();
        tasks.sort_by_key(|&(number, me, _)| (number, me));
        let mut identities = Vec::new();
        for same in tasks.chunks(5) {
            let same: Vec<(u32, TaskId)> = same.iter().map(|&(_, me, task)| (me, task)).collect();
            let comms: Vec<CommHandle> = cluster.outcomes(&same).iter().map(comm_of).collect();
            let mut names: Vec<_> =
                comms.iter().zip(0..).map(|(&comm, me)| cluster.core(me).identity(comm)).collect();
            names.dedup();
            assert_eq!(names.len(), 1, "{names:?}");
            identities.extend(names);
        }
        let count = identities.len();
        identities.sort_unstable_by_key(|name| *name.as_ref().expect("in use"));
        identities.dedup();
        assert_eq!((count, identities.len()), (12, 12));
    }
}

#[test]
fn an_agreement_tells_of_failures_until_all_have_acknowledged_them() {
    let mut cluster = Cluster::new(6, 1);
    let agree = |cluster: &mut Cluster| -> Vec<Outcome> {
        let tasks = cluster.all(|core, me, now| {
            (me, core.iagree(core.world(), !(1 << me), now).expect("world is there"))
        });
        cluster.settle();
        cluster.outcomes(&tasks)
    };
    let all = |flag: u64, failure| Ok(Output::Agreed { flag, failure });
    assert_eq!(agree(&mut cluster), vec![all(!0b111111, None); 6]);
    cluster.kill(4);
    let failed = Some(CoreError::ProcFailed { rank: 4 });
    assert_eq!(agree(&mut cluster), vec![all(!0b101111, failed.clone()); 5]);
    // Everybody can ask who it was, at once.
    let known = cluster.all(|core, _, _| core.failed(core.world()).expect("world is there"));
    assert_eq!(known, vec![Group::range(4, 1); 5]);
    // One of them acknowledges: not enough.
    let core = cluster.core(2);
    assert_eq!(core.ack_failed(core.world()), Ok(1));
    assert_eq!(agree(&mut cluster), vec![all(!0b101111, failed); 5]);
    // Nor is it when some acknowledge none of them.
    cluster.all(|core, me, _| {
        let most = usize::from(me != 1);
        assert_eq!(core.ack_failed_up_to(core.world(), most), Ok(usize::from(me != 1)));
    });
    let failed = Some(CoreError::ProcFailed { rank: 4 });
    assert_eq!(agree(&mut cluster), vec![all(!0b101111, failed); 5]);
    cluster.all(|core, _, _| core.ack_failed(core.world()).expect("world is there"));
    assert_eq!(agree(&mut cluster), vec![all(!0b101111, None); 5]);
    let acked = cluster.all(|core, _, _| core.acked(core.world()).expect("world is there"));
    assert_eq!(acked, known);
    // Collectives stay over, shrinking works.
    let refused = cluster.all(|core, _, now| {
        let none = Memory::none();
        core.icollective(core.world(), &Call::Barrier, none, None, now).err()
    });
    assert_eq!(refused, vec![Some(CoreError::ProcFailed { rank: 4 }); 5]);
    let shrinks =
        cluster.all(|core, me, now| (me, core.ishrink(core.world(), now).expect("there")));
    cluster.settle();
    let shrunk: Vec<CommHandle> = cluster.outcomes(&shrinks).iter().map(comm_of).collect();
    let group = Group::of([0, 1, 2, 3, 5]).expect("distinct");
    for (me, comm) in [0, 1, 2, 3, 5].into_iter().zip(shrunk) {
        assert_eq!(cluster.core(me).group(comm), Ok(&group));
    }
}

#[test]
fn a_freed_communicator_stays_until_its_operations_are_over_and_its_id_comes_back() {
    let mut cluster = Cluster::new(3, 1);
    let mut seen = Vec::new();
    for _ in 0..40 {
        let dups = cluster.all(|core, me, now| {
            (me, core.idup(core.world(), none(), None, now).expect("world is there"))
        });
        cluster.settle();
        let comms: Vec<CommHandle> = cluster.outcomes(&dups).iter().map(comm_of).collect();
        seen.push(cluster.core(0).identity(comms[0]).expect("in use"));
        let barriers = cluster.all(|core, me, now| {
            let comm = comms[me as usize];
            let none = Memory::none();
            let call = Call::Barrier;
            let barrier = core.icollective(comm, &call, none, None, now).expect("in use");
            core.free(comm).expect("in use");
            assert_eq!(core.free(comm), Err(CoreError::NoSuchComm));
            (me, barrier)
        });
        cluster.settle();
        assert_eq!(cluster.outcomes(&barriers), vec![Ok(Output::Done); 3]);
    }
    let cids: std::collections::BTreeSet<u16> = seen.iter().map(|&(cid, _)| cid).collect();
    assert_eq!(cids.len(), 1, "one id is enough: {seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].1 < pair[1].1), "each life has its epoch: {seen:?}");
}

/// A member hears of a death first, and frees the communicator, while others are still in a collective: to them it is
/// interrupted, and nothing worse.
#[test]
fn who_frees_a_communicator_after_a_failure_interrupts_those_who_do_not_know_yet() {
    let mut cluster = Cluster::new(2, 1);
    let dups = cluster.all(|core, me, now| {
        (me, core.idup(core.world(), none(), None, now).expect("world is there"))
    });
    cluster.settle();
    let comms: Vec<CommHandle> = cluster.outcomes(&dups).iter().map(comm_of).collect();
    cluster.core(0).free(comms[0]).expect("in use");
    // So long that its sender waits for an answer.
    let data = OwnedBuffer::zeroed(1 << 20);
    let send = SendRegion::of_static(&[]);
    // SAFETY: `data` is kept until the operation is over.
    let memory = unsafe { Memory { send, recv: data.recv_region() } };
    let (call, now) = (Call::Bcast { root: Root::Rank(1), len: 1 << 20 }, cluster.now());
    let task = cluster.core(1).icollective(comms[1], &call, memory, None, now).expect("in use");
    cluster.settle();
    assert_eq!(cluster.outcomes(&[(1, task)]), [Err(CoreError::Interrupted)]);
}

#[test]
fn what_a_communicator_has_is_inherited_as_the_standard_says() {
    use ironweave_core::{CommComparison, ErrorHandler, Raised};
    let mut cluster = Cluster::new(1, 1);
    let core = cluster.core(0);
    let (world, key) = (core.world(), core.keyvals.create(None, None));
    let mut attributes = core.attributes(world).expect("there").clone();
    attributes.set(&core.keyvals, world, key, Arc::new(5_u8)).expect("a key");
    core.set_attributes(world, attributes.clone()).expect("there");
    core.set_errhandler(world, ErrorHandler::Return).expect("there");
    core.set_info(world, Some(Arc::new("hints"))).expect("there");
    let dup = core.idup(world, Ok(attributes), None, 0).expect("there");
    let refused = core.idup(world, Err(CoreError::Callback(7)), None, 0).expect("there");
    let part = core.isplit(world, Some(0), 0, 0).expect("there");
    cluster.settle();
    let core = cluster.core(0);
    let dup = comm_of(&core.test(dup).expect("over"));
    assert_eq!(core.test(refused), Some(Err(CoreError::Callback(7))));
    let part = comm_of(&core.test(part).expect("over"));
    assert!(core.attributes(dup).expect("there").get(key).is_some());
    assert!(core.attributes(part).expect("there").get(key).is_none());
    assert!(core.info(dup).expect("there").is_some() && core.info(part).expect("there").is_none());
    let error = CoreError::Revoked;
    assert!(matches!(core.raise(part, "barrier", &error), Raised::Return));
    assert_eq!(core.compare(world, dup), Ok(CommComparison::Congruent));
    assert_eq!(core.compare(world, world), Ok(CommComparison::Identical));
    core.set_name(dup, "copy").expect("there");
    core.set_errhandler(dup, ErrorHandler::Fatal).expect("there");
    let Raised::Fatal(text) = core.raise(dup, "barrier", &error) else { panic!("fatal") };
    assert_eq!(text, "rank 0: barrier on communicator \"copy\": the communicator has been revoked");
}

/// Everybody but the dead reads of it on the page of the host.
fn read_on_the_page(cluster: &mut Cluster, victim: u32) {
    cluster.net.fault(SimFault::Kill(Peer(victim)));
    cluster.cores[victim as usize] = None;
    cluster.all(|core, _, now| core.proc_failed_by_page(victim, now));
}

fn learned(core: &Core<SimBtl>, victim: u32) -> bool {
    core.plane.dead().contains(victim)
}

/// What a process waits for from the dead ends at once, and what is begun later fails at once; the control plane is told when the others have had the time to
/// read the page. No message is sent before.
#[test]
fn what_the_page_tells_ends_requests_at_once_and_is_told_to_the_control_plane_later() {
    let mut cluster = Cluster::on_a_host(4, 1);
    let comm = cluster.core(0).world();
    cluster.settle();
    let buffer = OwnedBuffer::zeroed(8);
    // SAFETY: the buffer is kept until the request is over.
    let into = unsafe { buffer.recv_region() };
    let core = cluster.core(0);
    let id = core.point_to_point(comm).expect("there");
    let (from, tag) = (Source::Rank(3), TagMatch::Tag(1));
    let request = core.pml.recv_into(id, into, from, tag, true).expect("there");
    let sent =
        |cluster: &Cluster| cluster.counters.iter().map(|of| of.frames_sent.get()).sum::<u64>();
    let (before, at) = (sent(&cluster), cluster.now());
    read_on_the_page(&mut cluster, 3);
    let core = cluster.core(0);
    let ended = core.pml.test(request).expect("it is over").result;
    assert_eq!(ended, Err(PmlError::ProcFailed { rank: 3 }));
    assert!(core.is_failed(3));
    let call = Call::Barrier;
    let memory = || Memory { send: SendRegion::of_static(&[]), recv: RecvRegion::empty() };
    let begun = core.icollective(comm, &call, memory(), None, at);
    assert_eq!(begun, Err(CoreError::ProcFailed { rank: 3 }));
    assert_eq!(cluster.all(|core, _, _| learned(core, 3)), [false; 3]);
    assert_eq!(cluster.all(|core, _, _| core.next_deadline()), [Some(at + 1_000_000); 3]);
    // A process may look as often as it likes before.
    for _ in 0..1000 {
        cluster.all(|core, _, now| core.progress(|| now + 999_999));
    }
    assert_eq!(cluster.all(|core, _, _| learned(core, 3)), [false; 3]);
    assert_eq!(sent(&cluster), before, "nobody was told");
    cluster.settle();
    assert_eq!(cluster.all(|core, _, _| learned(core, 3)), [true; 3]);
    assert!(cluster.now() >= at + 1_000_000 && sent(&cluster) > before);
}

/// Whoever asks anything of the control plane has it know first: an agreement, a shrink, a revocation, a creation; and who waits for it already does not
/// wait longer.
#[test]
fn the_control_plane_knows_what_the_page_tells_before_it_is_asked() {
    type Ask = fn(&mut Core<SimBtl>, u64);
    let asks: [Ask; 6] = [
        |core, now| _ = core.iagree(core.world(), 1, now).expect("there"),
        |core, now| _ = core.agree(core.world(), 1, 0, now).expect("there"),
        |core, now| _ = core.ishrink(core.world(), now).expect("there"),
        |core, now| core.revoke(core.world(), now).expect("there"),
        |core, now| _ = core.idup(core.world(), none(), None, now).expect("there"),
        |core, now| {
            core.free(core.world()).expect("there");
            core.progress(|| now);
        },
    ];
    for (nth, ask) in asks.iter().enumerate() {
        let mut cluster = Cluster::on_a_host(3, 1);
        cluster.settle();
        read_on_the_page(&mut cluster, 2);
        let now = cluster.now();
        assert!(!learned(cluster.core(0), 2));
        ask(cluster.core(0), now);
        assert!(learned(cluster.core(0), 2), "asked {nth}");
    }
    let mut cluster = Cluster::new(3, 1);
    cluster.settle();
    read_on_the_page(&mut cluster, 2);
    assert!(learned(cluster.core(0), 2), "others may not read the same page");
    let mut cluster = Cluster::on_a_host(3, 1);
    cluster.settle();
    let now = cluster.now();
    let core = cluster.core(0);
    let task = core.iagree(core.world(), 1, now).expect("there");
    read_on_the_page(&mut cluster, 2);
    assert!(learned(cluster.core(0), 2), "an agreement is under way");
    assert!(!learned(cluster.core(1), 2));
    let core = cluster.core(1);
    let other = core.iagree(core.world(), 1, now).expect("there");
    cluster.settle();
    for outcome in cluster.outcomes(&[(0, task), (1, other)]) {
        let failure = Some(CoreError::ProcFailed { rank: 2 });
        assert_eq!(outcome, Ok(Output::Agreed { flag: 1, failure }));
    }
}

/// A process that has read of it is asked by one that has read of it, too, and asks back: by then it knows.
#[test]
fn a_frame_of_another_process_has_the_control_plane_know() {
    let mut cluster = Cluster::on_a_host(3, 1);
    cluster.settle();
    read_on_the_page(&mut cluster, 2);
    let at = cluster.now();
    let core = cluster.core(0);
    let task = core.iagree(core.world(), 1, at).expect("there");
    for _ in 0..100 {
        cluster.turns(4);
    }
    assert!(learned(cluster.core(1), 2), "{} ns later", cluster.now() - at);
    assert!(cluster.now() < at + 1_000_000, "not by the time that has passed");
    let now = cluster.now();
    let core = cluster.core(1);
    let other = core.iagree(core.world(), 1, now).expect("there");
    cluster.settle();
    assert_eq!(cluster.outcomes(&[(0, task), (1, other)]).len(), 2);
}
