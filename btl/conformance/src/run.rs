//! One test: its name, its seed, and how to run it again.

use crate::{Harness, child};
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// What the test's thread does just now, for the watchdog.
static DOING: Mutex<String> = Mutex::new(String::new());

/// A test of the suite, as [`suite!`](crate::suite) makes it.
#[derive(Clone, Debug)]
pub struct Run {
    package: &'static str,
    path: &'static str,
    pub(crate) seed: u64,
    fixed: bool,
}

/// Ends a scenario that cannot run here: why.
#[derive(Debug)]
pub struct Skip(pub(crate) String);

impl<T: Display> From<T> for Skip {
    fn from(why: T) -> Self {
        Skip(why.to_string())
    }
}

impl Run {
    /// The test `path` (as `module_path!` and the function's name give it) of `package`.
    #[must_use]
    pub fn new(package: &'static str, path: &'static str) -> Self {
        let given = std::env::var("IRONWEAVE_SEED").ok();
        let given = given.map(|text| {
            text.parse().unwrap_or_else(|_| panic!("IRONWEAVE_SEED is not a number: {text}"))
        });
        let fresh = || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let nanos = now.map_or(0, |now| now.subsec_nanos());
            u64::from(nanos ^ std::process::id().rotate_left(20)) % 1_000_000_000
        };
        Run { package, path, fixed: given.is_some(), seed: given.unwrap_or_else(fresh) }
    }

    /// The test's name as the test binary knows it.
    pub(crate) fn name(&self) -> &'static str {
        self.path.split_once("::").map_or(self.path, |(_, name)| name)
    }

    /// The test's name among those of all transports, for lists of allowed skips.
    fn skipped(&self) -> String {
        let package = self.package.trim_start_matches("ironweave-btl-");
        format!("{package}/{}", self.name().replace("::", "/"))
    }

    /// The command that runs this seed again.
    pub(crate) fn replay(&self) -> String {
        format!(
            "IRONWEAVE_SEED={} cargo nextest run -p {} {}",
            self.seed,
            self.package,
            self.name()
        )
    }

    /// Runs the scenario, or, in a process that a stage started, plays its part.
    pub fn start<H: Harness>(self, scenario: impl Fn(&Run) -> Result<(), Skip>) {
        if let Some(role) = child::Role::from_environment() {
            child::play::<H>(&role);
        }
        let test = self.path.rsplit("::").next().unwrap_or(self.path);
        if let Some(reason) = H::cannot(test) {
            return println!("SKIP {}: {reason}", self.skipped());
        }
        if let Err(reason) = H::prepare() {
            return println!("SKIP {}: {reason}", self.skipped());
        }
        let _watch = watch(self.replay());
        raise_descriptor_limit();
        if let Err(Skip(reason)) = scenario(&self) {
            println!("SKIP {}: {reason}", self.skipped());
        }
    }

    /// Calls `each` with `rounds` seeds, or with the one that was asked for.
    pub(crate) fn rounds(
        &self,
        rounds: u64,
        mut each: impl FnMut(&Run) -> Result<(), Skip>,
    ) -> Result<(), Skip> {
        let rounds = if self.fixed { 1 } else { rounds };
        for round in 0..rounds {
            each(&Run { seed: self.seed + round, ..self.clone() })?;
        }
        Ok(())
    }
}

/// How long a test may go without an end.
pub(crate) fn patience() -> Duration {
    let seconds = std::env::var("IRONWEAVE_WATCHDOG").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

/// What the test does.
pub(crate) fn what_it_does() -> String {
    DOING.lock().map(|doing| doing.clone()).unwrap_or_default()
}

/// Notes what the test does.
pub(crate) fn doing(what: &str) {
    if let Ok(mut doing) = DOING.lock() {
        doing.clear();
        doing.push_str(what);
    }
}

/// Aborts this process when it hangs inside a transport, where no stage can look at it. Stages give up before. Until what is
/// given back is dropped: other tests may follow in this process.
pub(crate) fn watch(hint: String) -> Arc<()> {
    let limit = patience() * 4;
    let watched = Arc::new(());
    let going_on = Arc::downgrade(&watched);
    std::thread::spawn(move || {
        let start = Instant::now();
        while start.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(200));
            if going_on.strong_count() == 0 {
                return;
            }
        }
        let doing = what_it_does();
        eprintln!("WATCHDOG: process {} is still at: {doing}\n  {hint}", std::process::id());
        std::process::abort();
    });
    watched
}

/// Thousands of endpoints need thousands of descriptors.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        eprintln!("the limit of open files stays at {:?}", limit.current);
    }
}
