//! What the files of whole jobs share: the devices that were given, what a driver's output must have, and the jobs that run
//! over each fabric library alike.
#![allow(dead_code)] // each file uses its part

use ironweave_hwtests::fabric::Fabric;
use ironweave_hwtests::job::Job;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
        let there = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
            .iter()
            .any(|folder| Path::new(folder).join(self.library).exists());
        if std::env::var_os(self.variable).is_none() && !there {
            return skip(self.suite, test, &format!("no {}", self.library));
        }
        Some(given)
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

    /// With `parameters` no job starts; what it says then.
    pub fn refusal(&self, fabric: &Fabric, parameters: &[&str]) -> String {
        let job = self.job(fabric, 2, "iw-osu", &["latency", "-m", "8:8", "-i", "2"]);
        let (well, words) = job.parameters(parameters).devices("").end();
        assert!(!well, "{words}");
        words
    }
}
