//! A rank that does what its arguments say, one step each: the subject of the end-to-end tests, and
//! a way to try a launcher by hand.
//!
//! `ironweave run -n 3 probe join publish fence 1/kill:9 failures:1 finalize`
//!
//! A step of the form `RANK/STEP` is done by that rank only, `!RANK/STEP` by all others. Prints what
//! it learns, one line each.

use ironweave_rte::{Job, RteError};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// No step waits longer: a launcher that hangs shows as a failed probe, not as a hung test.
const WATCHDOG: Duration = Duration::from_secs(120);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    std::thread::spawn(|| {
        std::thread::sleep(WATCHDOG);
        eprintln!("probe: watchdog after {WATCHDOG:?}");
        std::process::exit(99);
    });
    let mut probe = Probe { job: None, cursor: 0 };
    for step in std::env::args().skip(1) {
        probe.step(&step)?;
    }
    Ok(())
}

struct Probe {
    job: Option<Job>,
    cursor: usize,
}

impl Probe {
    fn step(&mut self, step: &str) -> Result<(), Box<dyn std::error::Error>> {
        let rank = match &self.job {
            Some(job) => job.rank(),
            None => std::env::var("PMI_RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0),
        };
        let step = match step.split_once('/') {
            Some((who, step)) => {
                let (others, who) = who.strip_prefix('!').map_or((false, who), |who| (true, who));
                if (who.parse::<u32>()? == rank) == others {
                    return Ok(());
                }
                step
            }
            None => step,
        };
        let (verb, argument) = step.split_once(':').unwrap_or((step, ""));
        match verb {
            "join" => self.job = Some(Job::join()?),
            "whoami" => {
                let job = self.job()?;
                let local: Vec<_> = job.local_ranks().collect();
                let (rank, size) = (job.rank(), job.size());
                let digest = blake3::keyed_hash(&job.secret(), b"same for all").to_hex();
                println!("rank {rank} of {size} local {local:?} secret {}", &digest[..8]);
            }
            "param" => {
                let setting = self.job()?.params().setting(argument);
                let setting = setting.ok_or("no such parameter")?;
                println!("{argument} = {} from {}", setting.text, setting.source);
            }
            "publish" => self.job()?.publish("blob", &blob(rank))?,
            "fence" => self.job()?.fence()?,
            "lookup" => {
                let job = self.job()?;
                for peer in 0..job.size() {
                    match job.lookup(peer, "blob")? {
                        Some(value) if value == blob(peer) => println!("blob {peer} whole"),
                        Some(_) => println!("blob {peer} garbled"),
                        None => println!("blob {peer} missing"),
                    }
                }
            }
            "failures" => self.failures(argument.parse()?)?,
            "told" => {
                let start = Instant::now();
                let dead = loop {
                    if let Some(dead) = self.job()?.directory().told_dead()? {
                        break dead;
                    }
                    if start.elapsed() > WATCHDOG / 2 {
                        return Err("the launcher told of no death".into());
                    }
                    std::thread::sleep(Duration::from_millis(1));
                };
                println!("{rank} is told {dead:?}");
            }
            "finalize" => self.job()?.finalize()?,
            "abort" => match argument.split_once('@') {
                None => self.job()?.abort(argument.parse()?),
                Some((code, ranks)) => {
                    let ranks: Result<Vec<u32>, _> = ranks.split('+').map(str::parse).collect();
                    self.job()?.abort_ranks(code.parse()?, &ranks?)
                }
            },
            "print" => println!("{argument}"),
            "partial" => {
                print!("{argument}");
                std::io::stdout().flush()?;
            }
            "lines" => {
                let mut out = std::io::stdout().lock();
                for line in 0..argument.parse::<u64>()? {
                    writeln!(out, "{rank} {line:>20} {}", "x".repeat(40))?;
                }
            }
            "stdin" => {
                let mut all = Vec::new();
                std::io::stdin().read_to_end(&mut all)?;
                println!("stdin {} bytes {}", all.len(), &blake3::hash(&all).to_hex()[..16]);
            }
            "sleep" => std::thread::sleep(Duration::from_millis(argument.parse()?)),
            "pid" => println!("pid {rank} {}", std::process::id()),
            "affinity" => {
                let mask = rustix::thread::sched_getaffinity(None)?;
                let cpus = 0..rustix::thread::CpuSet::MAX_CPU;
                let cpus: Vec<_> = cpus.filter(|cpu| mask.is_set(*cpu)).collect();
                println!("rank {rank} on cpus {cpus:?}");
            }
            "child" => {
                let child = std::process::Command::new("sleep").arg("1000").spawn()?;
                println!("child {rank} {}", child.id());
            }
            "catch" => {
                let signal: i32 = argument.parse()?;
                let mut signals = signal_hook::iterator::Signals::new([signal])?;
                println!("ready {rank}");
                signals.forever().next();
                println!("caught {rank} {signal}");
            }
            "kill" => {
                let signal = rustix::process::Signal::from_named_raw(argument.parse()?);
                let signal = signal.ok_or("no such signal")?;
                rustix::process::kill_process(rustix::process::getpid(), signal)?;
                std::thread::sleep(WATCHDOG);
            }
            "exit" => std::process::exit(argument.parse()?),
            _ => return Err(format!("probe: no step {step:?}").into()),
        }
        Ok(())
    }

    fn job(&mut self) -> Result<&mut Job, RteError> {
        self.job.as_mut().ok_or_else(|| RteError::Environment("probe: join first".into()))
    }

    /// Waits until so many more ranks are on the liveness page; prints them.
    fn failures(&mut self, count: usize) -> Result<(), Box<dyn std::error::Error>> {
        let job = self.job.as_ref().ok_or("probe: join first")?;
        let start = Instant::now();
        let mut seen = 0;
        while seen < count {
            for failed in job.liveness().failed_since(&mut self.cursor) {
                println!("{} sees rank {}: {}", job.rank(), failed.rank, failed.how);
                seen += 1;
            }
            if start.elapsed() > WATCHDOG / 2 {
                return Err(format!("only {seen} of {count} failures were told").into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

/// A binary value that needs more than one key.
fn blob(rank: u32) -> Vec<u8> {
    (0..3000u32).map(|index| (index.wrapping_mul(31) ^ rank.wrapping_mul(7)) as u8).collect()
}
