//! What the files of whole jobs share: the devices that were given, what a driver's output must have, and the jobs that run
//! over each fabric library alike.
#![allow(dead_code)] // each file uses its part

use ironweave_hwtests::fabric::{Fabric, VM, Wire};
use ironweave_hwtests::job::Job;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One job at a time has the devices and the wires.
static ALONE: Mutex<()> = Mutex::new(());

/// The devices that a test has to itself.
pub type Given = (Fabric, MutexGuard<'static, ()>);

/// The devices and programs that were given; `None`, with a line that says so, where there are none.
pub fn given(suite: &str, test: &str) -> Option<Given> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(fabric) = Fabric::given() else {
        return skip(suite, test, "no devices are given (IRONWEAVE_VERBS_HOSTS)");
    };
    if Job::programs().is_none() {
        return skip(suite, test, "no programs are given (IRONWEAVE_PROGRAMS)");
    }
    Some((fabric, alone))
}

/// Says that a test is skipped, and why.
pub fn skip<T>(suite: &str, test: &str, why: &str) -> Option<T> {
    println!("SKIP {suite}/{test}: {why}");
    None
}

/// A table of `sizes` rows, with figures.
pub fn swept(output: &str, sizes: usize) {
    let row = |line: &str| -> Option<(usize, f64)> {
        let mut words = line.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    let rows: Vec<_> =
        output.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect();
    assert_eq!(rows.len(), sizes, "{output}");
    assert!(rows.iter().all(|(_, figure)| figure.is_finite() && *figure >= 0.0), "{output}");
}

/// Seen to end, by all survivors, with nothing wrong in what they got before and after.
pub fn recovered(output: &str) {
    let survivors: Vec<&str> =
        output.lines().filter(|line| line.starts_with("survivor ")).collect();
    assert_eq!(survivors.len(), 3, "{output}");
    for survivor in survivors {
        let field = |name: &str| -> u64 {
            let field = survivor.split_whitespace().find_map(|word| word.strip_prefix(name));
            field.and_then(|value| value.parse().ok()).expect(survivor)
        };
        assert!(field("ended=") > 0 && field("bytes_after=") > 0, "{survivor}");
        assert_eq!(field("wrong_words="), 0, "{survivor}");
        println!("{survivor}");
    }
}

/// Shorter than the devices take to give up: they ask again several times, a second or more in all.
const SHORT_CUT: Duration = Duration::from_millis(300);
/// A detector that is quick, and still calm where processors are emulated.
const DETECTOR: [&str; 4] = ["ft_detector_period", "100ms", "ft_detector_timeout", "3s"];

/// Where a fabric library is, as Debian and others have it, or as its variable says.
pub fn has_library(variable: &str, library: &str) -> bool {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"];
    std::env::var_os(variable).is_some()
        || folders.iter().any(|folder| Path::new(folder).join(library).exists())
}

/// A transport of a fabric library, and what there must be to have it.
pub struct Way {
    /// The tests' first name.
    pub suite: &'static str,
    /// Parameters that select the transport and nothing else.
    pub parameters: &'static [&'static str],
    /// The environment variable that names the library.
    pub variable: &'static str,
    /// The library, where Debian and others have it.
    pub library: &'static str,
}

impl Way {
    /// As [`given`], where the library is, too.
    pub fn given(&self, test: &str) -> Option<Given> {
        let given = given(self.suite, test)?;
        if !has_library(self.variable, self.library) {
            return skip(self.suite, test, &format!("no {}", self.library));
        }
        Some(given)
    }

    /// As `given`, with all four ends of the wires, to cut.
    fn wired(&self, test: &str) -> Option<(Given, Vec<Wire>)> {
        let given = self.given(test)?;
        if std::env::var_os(VM).is_none() {
            let why = "there are no wires to cut outside of the virtual machine";
            return skip(self.suite, test, why);
        }
        let ends = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let wires = ends.into_iter().filter_map(|(host, rail)| Wire::of(host, rail)).collect();
        Some((given, wires))
    }

    fn job<'a>(
        &self,
        fabric: &'a Fabric,
        ranks: u32,
        program: &'a str,
        arguments: &[&str],
    ) -> Job<'a> {
        Job::new(fabric, ranks, program, arguments).parameters(self.parameters)
    }

    /// Messages of all sizes to four megabytes.
    pub fn latency(&self, test: &str) {
        let Some((fabric, _alone)) = self.given(test) else { return };
        let arguments = ["latency", "-m", "1:4194304", "-i", "2"];
        swept(&self.job(&fabric, 2, "iw-osu", &arguments).finish(), 23);
    }

    /// The demo's job: rank 3 is killed in the middle of large transfers, the others recover and finish.
    pub fn a_killed_rank(&self, test: &str) {
        let Some((fabric, _alone)) = self.given(test) else { return };
        recovered(&self.job(&fabric, 4, "survive", &["--megabytes", "1"]).finish());
    }

    /// Revoke with everything pending, agreement, shrinking, with processes that die meanwhile.
    pub fn revoke_agree_and_shrink(&self, test: &str) {
        let Some((fabric, _alone)) = self.given(test) else { return };
        for scenario in [&["revoke"][..], &["buddy", "3"], &["agree", "5"]] {
            self.job(&fabric, 4, "recovery", scenario).finish();
        }
    }

    /// A rank dies at a random moment of an all-to-all exchange: `IRONWEAVE_SEED=N` replays one.
    pub fn kills_at_random_moments(&self, test: &str) {
        let Some((fabric, _alone)) = self.given(test) else { return };
        let seeds = match std::env::var("IRONWEAVE_SEED") {
            Ok(seed) => vec![seed.parse::<u64>().expect("IRONWEAVE_SEED is a number")],
            Err(_) => (0..6).collect(),
        };
        for seed in seeds {
            println!("replay with IRONWEAVE_SEED={seed} ci/hwtests {test}");
            self.job(&fabric, 4, "scenarios", &["random_kill", &seed.to_string()]).finish();
        }
    }

    /// A stopped process is silent on the wire, and its device goes on acknowledging: the detector finds it.
    pub fn a_stopped_rank(&self, test: &str) {
        let Some((fabric, _alone)) = self.given(test) else { return };
        let job = self.job(&fabric, 4, "heartbeat", &["stopped"]).parameters(&DETECTOR);
        let said = job.finish();
        // By the three who go on.
        assert_eq!(said.matches(" learned after ").count(), 3, "{said}");
    }

    /// Both wires lose one packet of twenty, each way.
    pub fn wires_that_lose(&self, test: &str) {
        let Some(((fabric, _alone), mut wires)) = self.wired(test) else { return };
        wires.iter_mut().for_each(|wire| wire.netem("loss 5%"));
        recovered(&self.job(&fabric, 4, "survive", &["--megabytes", "1"]).finish());
    }

    /// Both wires carry nothing for less than the devices' retry time, in the middle of messages: nothing is lost, nobody fails.
    pub fn a_short_cut(&self, test: &str) {
        let Some(((fabric, _alone), mut wires)) = self.wired(test) else { return };
        let arguments = ["latency", "-m", "4096:524288", "-i", "20"];
        let mut job = self.job(&fabric, 2, "iw-osu", &arguments).start();
        for word in ["8192 ", "65536 "] {
            job.until(word);
            wires.iter_mut().for_each(|wire| wire.netem("loss 100%"));
            std::thread::sleep(SHORT_CUT);
            wires.iter_mut().for_each(Wire::clean);
        }
        swept(&job.finish(), 8);
    }

    /// With `parameters` no job starts; what it says then.
    pub fn refusal(&self, fabric: &Fabric, parameters: &[&str]) -> String {
        let job = self.job(fabric, 2, "iw-osu", &["latency", "-m", "8:8", "-i", "2"]);
        let (well, words) = job.parameters(parameters).devices("").end();
        assert!(!well, "{words}");
        words
    }
}
