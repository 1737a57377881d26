//! This process's membership of a job: who it is, how it finds the others, and how it leaves.
//!
//! Made at start, used for one address exchange (publish, fence, lookup), then kept for the
//! liveness page and for the end. Works under `ironweave run`, under any launcher that speaks PMI-1
//! (Hydra's and Intel's `mpiexec`, `srun --mpi=pmi2`), and alone, as a job of one.
//! Under Hydra, which signals survivors when a process dies, it also survives that signal and can ask
//! who died ([`Directory::told_dead`]). Never exits or panics because of a peer (law 3), never leaves anything behind (law 8).

use crate::board::{self, Shared};
use crate::directory::{Directory, Exchange};
use crate::error::{Result, RteError};
use crate::lifeline::Lifeline;
use crate::liveness::Liveness;
use crate::logging;
use crate::params::{Params, sources};
use crate::pmi::client::{Client, Place};
use crate::pmi::{mapping, text};
use crate::secret::{self, Secret};
use ironweave_btl_shm::SingleCopy;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The key under which the job's secret is found; our launcher puts it there before any rank runs.
pub(crate) const SECRET_KEY: &str = "iw-secret";
/// Where process managers tell which host each rank runs on.
pub(crate) const MAPPING_KEY: &str = "PMI_process_mapping";
/// The environment variable with the number of the board's descriptor.
pub(crate) const BOARD_VARIABLE: &str = "IRONWEAVE_BOARD_FD";
/// The environment variable with the number of the liveness page's descriptor.
pub(crate) const LIVENESS_VARIABLE: &str = "IRONWEAVE_LIVENESS_FD";
/// What a process started by Hydra (MPICH's or Intel's) finds in its environment.
const HYDRA_VARIABLES: [&str; 2] = ["HYDI_CONTROL_FD", "HYDRA_CONTROL_FD"];
/// The environment variable with the number of cores that the ranks of a host share.
pub(crate) const CORES_VARIABLE: &str = "IRONWEAVE_CORES";
/// The environment variable with how long messages go between two cores of the host.
pub(crate) const SINGLE_COPY_VARIABLE: &str = "IRONWEAVE_SINGLE_COPY";

/// A process's membership of a job.
///
/// ```
/// let mut job = ironweave_rte::Job::join()?;
/// job.publish("address", b"anything binary")?;
/// job.fence()?;
/// let mine = job.lookup(job.rank(), "address")?;
/// assert_eq!(mine.as_deref(), Some(&b"anything binary"[..]));
/// job.finalize()?;
/// # Ok::<(), ironweave_rte::RteError>(())
/// ```
#[derive(Debug)]
pub struct Job {
    place: Place,
    id: String,
    secret: Secret,
    hosts: Vec<u32>,
    liveness: Liveness,
    board: Option<&'static [AtomicU64]>,
    lifeline: Option<Lifeline>,
    params: Params,
    directory: Directory,
    finalized: bool,
}

impl Job {
    /// Joins the job the environment describes; a job of one where it describes none.
    ///
    /// Blocks for a few round trips to the process manager. Under a foreign launcher it fences once
    /// (rank 0 shares the secret it makes), so all processes have to call it. Logs what `IRONWEAVE_LOG` asks for, on standard error.
    ///
    /// # Errors
    /// The environment is contradictory, a parameter is wrong, or the process manager is gone.
    pub fn join() -> Result<Job> {
        logging::start(None);
        let params = sources::load_for_rank()?;
        match connect()? {
            Some((client, place)) => Job::member(client, place, params),
            None => Ok(Job {
                place: Place { rank: 0, size: 1 },
                id: format!("singleton-{}", secret::fresh_name()?),
                secret: secret::fresh()?,
                hosts: vec![0],
                liveness: Liveness::absent(),
                board: None,
                lifeline: None,
                params,
                directory: Directory::new(Exchange::Alone(HashMap::new()), 1, false, None),
                finalized: false,
            }),
        }
    }

    fn member(mut client: Client, place: Place, params: Params) -> Result<Job> {
        let liveness = match std::env::var(LIVENESS_VARIABLE) {
            Ok(number) => {
                let fd = inherited(LIVENESS_VARIABLE, &number)?;
                Liveness::map(fd.as_fd(), place.size)?
            }
            Err(_) => Liveness::absent(),
        };
        let shared = match std::env::var(BOARD_VARIABLE) {
            Ok(number) => {
                Some(board::map(inherited(BOARD_VARIABLE, &number)?.as_fd(), place.size)?)
            }
            Err(_) => None,
        };
        let board = shared.map(|shared: Shared| shared.board);
        let line = shared.and_then(|shared| shared.lines.get(place.rank as usize));
        let lifeline = line.and_then(Lifeline::new);
        let signalled = if liveness.is_kept() { None } else { survive_hydras_signal()? };
        let secret = agree_on_secret(&mut client, place.rank, liveness.is_kept())?;
        let hosts = client.get(MAPPING_KEY)?.and_then(|text| mapping::parse(&text, place.size));
        let hosts = hosts.unwrap_or_else(|| {
            tracing::warn!("the launcher tells no host of any rank: each counts as on its own");
            (0..place.size).collect()
        });
        let id = client.kvs().to_owned();
        let (exchange, ours) = (Exchange::Pmi(client), liveness.is_kept());
        let directory = Directory::new(exchange, place.size, ours, signalled);
        let finalized = false;
        Ok(Job {
            place,
            id,
            secret,
            hosts,
            liveness,
            board,
            lifeline,
            params,
            directory,
            finalized,
        })
    }

    /// This process's rank, below [`size`](Self::size).
    pub fn rank(&self) -> u32 {
        self.place.rank
    }

    /// Ranks in the job, dead ones included.
    pub fn size(&self) -> u32 {
        self.place.size
    }

    /// A name no other job running at the same time has.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The secret only this job's processes know; peers prove it when they connect (law 9).
    pub fn secret(&self) -> Secret {
        self.secret
    }

    /// The host `rank` runs on, as an index; equal means shared memory. `None` outside the job.
    pub fn host_index(&self, rank: u32) -> Option<u32> {
        self.hosts.get(rank as usize).copied()
    }

    /// The ranks on this process's host, itself included, in order.
    pub fn local_ranks(&self) -> impl Iterator<Item = u32> + '_ {
        let here = self.hosts[self.place.rank as usize];
        (0..self.place.size).filter(move |rank| self.hosts[*rank as usize] == here)
    }

    /// Whether a rank is on this process's host.
    pub fn is_local(&self, rank: u32) -> bool {
        self.hosts.get(rank as usize) == self.hosts.get(self.place.rank as usize)
    }

    /// The cores that this host's ranks share: with fewer cores than ranks, a waiting rank must not keep its core to
    /// itself. A rank may be bound to one of them; under a foreign launcher it is what this process may use.
    pub fn cores(&self) -> usize {
        let told = std::env::var(CORES_VARIABLE).ok().and_then(|text| text.parse().ok());
        told.filter(|&cores| cores > 0)
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// How long messages go through shared memory here, if our launcher has tried it: before it started a rank, while the cores
    /// were idle.
    pub fn single_copy(&self) -> Option<SingleCopy> {
        std::env::var(SINGLE_COPY_VARIABLE).ok()?.parse().ok()
    }

    /// Puts `value` where every rank's [`lookup`](Self::lookup) finds it after the fence. Any
    /// bytes, up to a megabyte or so.
    ///
    /// # Errors
    /// The key or value is over the process manager's limits, or it is gone.
    pub fn publish(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let rank = self.place.rank;
        match &mut *self.directory.exchange() {
            Exchange::Alone(keys) => {
                keys.insert(key.to_owned(), value.to_owned());
            }
            Exchange::Pmi(client) => {
                let pieces = text::cut(value, client.value_limit()).ok_or_else(|| {
                    RteError::Limit(format!("{} bytes are too many for one key", value.len()))
                })?;
                for (index, piece) in pieces.iter().enumerate() {
                    client.put(&text::piece_key(rank, key, index), piece)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until every living rank has come here. Call it once, at start: under foreign launchers
    /// a rank that died keeps it waiting for ever; under ours the dead are not waited for.
    ///
    /// # Errors
    /// The process manager is gone or refuses.
    pub fn fence(&mut self) -> Result<()> {
        match &mut *self.directory.exchange() {
            Exchange::Alone(_) => Ok(()),
            Exchange::Pmi(client) => client.barrier(),
        }
    }

    /// What `rank` published under `key` before the fence; `None` if it did not, or died before.
    /// One round trip to the process manager, none to the rank.
    ///
    /// # Errors
    /// The process manager is gone, or the value is not one [`publish`](Self::publish) wrote.
    pub fn lookup(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        self.directory.lookup(rank, key)
    }

    /// A handle for asking while the job runs, from any thread.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Memory that the ranks of this host share, all zero at first, for `ironweave-ft`'s board; only under our launcher.
    pub fn board(&self) -> Option<&'static [AtomicU64]> {
        self.board
    }

    /// What a thread of this process that runs as long as it belongs to the job may hold, so that the launcher learns of its end early; only
    /// under our launcher.
    pub fn lifeline(&self) -> Option<Lifeline> {
        self.lifeline
    }

    /// The liveness page, or its empty stand-in.
    pub fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// The parameters of this process.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Tells the launcher that this process finalized: its exit is no failure from here on, and its
    /// exit code counts (seed 003 §17.5.2). Waits for the launcher's word, at most five seconds,
    /// and never for a peer. Again is a no-op.
    ///
    /// # Errors
    /// The process manager is gone or silent.
    pub fn finalize(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.finalized, true) {
            return Ok(());
        }
        match &mut *self.directory.exchange() {
            Exchange::Alone(_) => Ok(()),
            Exchange::Pmi(client) => client.finalize(),
        }
    }

    /// Ends the whole job with `code`, this process first. Only ever on the user's own request
    /// (`MPI_Abort`): law 3.
    pub fn abort(&mut self, code: i32) -> ! {
        self.abort_some(code, None)
    }

    /// Ends these ranks and this process with `code`; the others go on, as after any failure. Where the process manager is not our
    /// launcher, as [`abort`](Self::abort).
    pub fn abort_ranks(&mut self, code: i32, ranks: &[u32]) -> ! {
        self.abort_some(code, Some(ranks))
    }

    fn abort_some(&mut self, code: i32, ranks: Option<&[u32]>) -> ! {
        if let Exchange::Pmi(client) = &mut *self.directory.exchange() {
            // Whether or not the launcher still hears it, this process ends.
            let _ = client.abort(code, ranks);
        }
        std::process::exit(i32::from(crate::exit::code_of_abort(code)))
    }
}

/// The process manager's connection as the environment describes it.
fn connect() -> Result<Option<(Client, Place)>> {
    let variable = |name: &str| std::env::var(name).ok();
    if let Some(number) = variable("PMI_FD") {
        let number_of = |name: &str| -> Result<u32> {
            let text = variable(name)
                .ok_or_else(|| RteError::Environment(format!("PMI_FD is set, {name} is not")))?;
            text.parse().map_err(|_| RteError::Environment(format!("{name}={text:?} is no number")))
        };
        let place = Place { rank: number_of("PMI_RANK")?, size: number_of("PMI_SIZE")? };
        let client = Client::over(inherited("PMI_FD", &number)?)?;
        return checked(place).map(|place| Some((client, place)));
    }
    if let (Some(port), Some(id)) = (variable("PMI_PORT"), variable("PMI_ID")) {
        let (client, place) = Client::connect(&port, &id)?;
        return checked(place).map(|place| Some((client, place)));
    }
    Ok(None)
}

fn checked(place: Place) -> Result<Place> {
    match place.rank < place.size {
        true => Ok(place),
        false => Err(RteError::Environment(format!(
            "rank {} does not exist in a job of {}",
            place.rank, place.size
        ))),
    }
}

fn inherited(variable: &str, number: &str) -> Result<std::os::fd::OwnedFd> {
    let parsed = number
        .parse()
        .map_err(|_| RteError::Environment(format!("{variable}={number:?} is no descriptor")))?;
    ironweave_ffi::fd::inherited(parsed)
        .map_err(|error| RteError::system(format!("descriptor {number} of {variable}"), error))
}

/// Hydra sends SIGUSR1, which ends a process that does not handle it, to tell that another died.
/// A handler that was there before, or comes later, is called as well.
fn survive_hydras_signal() -> Result<Option<Arc<AtomicBool>>> {
    if !HYDRA_VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
        return Ok(None);
    }
    let signalled = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(rustix::process::Signal::USR1.as_raw(), Arc::clone(&signalled))
        .map_err(|error| RteError::system("cannot handle the launcher's SIGUSR1", error))?;
    Ok(Some(signalled))
}

/// Our launcher has put the secret; under another one rank 0 makes it and a fence shares it.
fn agree_on_secret(client: &mut Client, rank: u32, ours: bool) -> Result<Secret> {
    let read = |client: &mut Client| -> Result<Option<Secret>> {
        let Some(hex) = client.get(SECRET_KEY)? else { return Ok(None) };
        Ok(text::decode(&hex).and_then(|bytes| bytes.try_into().ok()))
    };
    // Only our launcher keeps a liveness page; asking a foreign one for the key first would race
    // with rank 0's put.
    if !ours {
        if rank == 0 {
            client.put(SECRET_KEY, &text::encode(&secret::fresh()?))?;
        }
        client.barrier()?;
    }
    read(client)?.ok_or_else(|| RteError::Protocol("the job has no secret".into()))
}
