//! Where the ranks are and what their cores are to each other (`LOOPS.md`, "The probe").

use super::sync::{all_gather, barrier};
use crate::lines::Bind;
use crate::probe;
use ironweave::{Comm, Error, Result};
use rustix::thread::sched_getcpu;
use std::time::{Duration, Instant};

/// The ranks' bindings and the two cores to probe.
pub struct Placement {
    /// One a rank.
    pub binds: Vec<Bind>,
    cores: Option<(usize, usize)>,
}

impl Placement {
    /// Asks everybody; every rank calls it and every rank gets the same answer.
    ///
    /// # Errors
    /// If a rank has failed or the kernel does not tell a rank's CPUs.
    pub fn ask(comm: &Comm) -> Result<Self> {
        let allowed = probe::allowed_cpus()
            .map_err(|error| Error::Rte(format!("sched_getaffinity: {error}")))?;
        let first = allowed.first().copied().unwrap_or_default();
        // Numbers of CPUs are exact in an f64.
        let mine = [sched_getcpu() as f64, allowed.len() as f64, first as f64];
        let binds: Vec<Bind> = all_gather(comm, mine)?
            .iter()
            .enumerate()
            .map(|(rank, [cpu, allowed, first])| Bind {
                rank,
                cpu: *cpu as usize,
                allowed: *allowed as usize,
                first: *first as usize,
            })
            .collect();
        let cores = if binds[0].allowed == 1 {
            let other = binds.iter().find(|bind| bind.first != binds[0].first);
            other.map(|other| (binds[0].first, other.first))
        } else {
            // Only rank 0 probes, so its own CPUs decide.
            allowed.get(1).map(|second| (first, *second))
        };
        Ok(Self { binds, cores })
    }

    /// The hand-over between the two cores in ns, on rank 0; 0 elsewhere, and where there is nothing to probe.
    ///
    /// # Errors
    /// If a rank has failed.
    pub fn probe(&self, comm: &Comm) -> Result<f64> {
        let mut result = 0.0;
        barrier(comm)?;
        match self.cores {
            Some((here, there)) if comm.rank() == 0 => {
                result = probe::hand_over(here, there)
                    .map_err(|error| Error::Rte(format!("probe: {error}")))?;
            }
            _ => {
                // The core stays awake, and the probe has it.
                let end = Instant::now() + Duration::from_nanos(probe::BUDGET_NS);
                while Instant::now() < end {
                    std::thread::yield_now();
                }
            }
        }
        barrier(comm)?;
        Ok(result)
    }
}
