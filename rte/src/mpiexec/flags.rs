//! The flags of `mpiexec` that are known, with what each takes. A plain list: one or two dashes are the same.

use Meaning::*;

/// What a flag asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Number of ranks of this program.
    Ranks,
    /// Hosts in a list.
    Hosts,
    /// Hosts in a file.
    HostFile,
    /// Ranks on each host.
    PerHost,
    /// An environment variable, `NAME=VALUE`, or `NAME` as it is here.
    Export,
    /// An environment variable in two words, for every program or for this one.
    Variable,
    /// The directory to start in.
    Directory,
    /// Binding to cores.
    BindTo,
    /// A placement policy; may ask for more ranks than slots.
    MapBy,
    /// More ranks than slots are fine.
    Oversubscribe,
    /// How to bring a program to another host.
    Agent,
    /// Whether failures end the job.
    FaultTolerance,
    /// The first failure ends the job.
    EndOnFailure,
    /// The error handler that programs begin with.
    InitialHandler,
    /// A parameter in two words.
    Parameter,
    /// Output lines begin with their rank.
    Tag,
    /// What lines begin with; only ranks are known.
    TagKind,
    /// Seconds until the job is ended.
    TimeLimit,
    /// Say nothing of what has no effect.
    Quiet,
    /// Tell the version.
    Version,
    /// Tell the flags.
    Help,
    /// What it asks for is how this launcher works anyway, or harmless to leave out.
    Granted,
    /// It would have changed something and does not: said.
    NoEffect,
}

/// A flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Its names, without dashes.
    pub names: &'static [&'static str],
    /// The words it takes, for help; none for a switch.
    pub takes: &'static [&'static str],
    /// What it asks for.
    pub meaning: Meaning,
    /// For help.
    pub help: &'static str,
}

const fn flag(
    names: &'static [&'static str],
    takes: &'static [&'static str],
    meaning: Meaning,
    help: &'static str,
) -> Flag {
    Flag { names, takes, meaning, help }
}

/// Every flag there is.
#[rustfmt::skip] // one flag, one line where it fits
pub static FLAGS: &[Flag] = &[
    flag(&["n", "np", "c"], &["N"], Ranks, "number of ranks; all slots of the hosts, or 1, if not given"),
    flag(&["host", "H", "hosts"], &["HOST[:SLOTS],…"], Hosts, "where to run"),
    flag(&["hostfile", "machinefile", "f", "default-hostfile"], &["FILE"], HostFile, "hosts, one a line: NAME, NAME:SLOTS or NAME slots=N"),
    flag(&["ppn", "N", "npernode", "perhost"], &["N"], PerHost, "ranks on each host"),
    flag(&["x"], &["NAME[=VALUE]"], Export, "set an environment variable (all that are set here are passed on anyway)"),
    flag(&["genv", "env"], &["NAME", "VALUE"], Variable, "set an environment variable"),
    flag(&["wdir", "wd", "chdir"], &["DIR"], Directory, "start in this directory"),
    flag(&["bind-to"], &["core|none"], BindTo, "bind each rank to a core; by default if there are enough"),
    flag(&["map-by"], &["POLICY"], MapBy, "ppr:N:node and :oversubscribe; nothing else has an effect: ranks fill hosts in order"),
    flag(&["oversubscribe", "overload-allowed"], &[], Oversubscribe, "more ranks than slots are fine"),
    flag(&["launch-agent", "rsh-agent"], &["CMD"], Agent, "command that runs a program on a host; {host} stands for its name"),
    flag(&["with-ft"], &["ulfm|mpi|none"], FaultTolerance, "none ends the job at the first failure; by default the others go on"),
    flag(&["disable-recovery"], &[], EndOnFailure, "end the job at the first failure"),
    flag(&["initial-errhandler"], &["mpi_errors_are_fatal|mpi_errors_abort|mpi_errors_return"], InitialHandler, "the error handler that the program begins with"),
    flag(&["mca", "gmca"], &["NAME", "VALUE"], Parameter, "set a parameter (see `ironweave info`)"),
    flag(&["tag-output", "l", "prepend-rank"], &[], Tag, "begin each line of output with its rank"),
    flag(&["output", "outfile-pattern"], &["KIND"], TagKind, "tag: as --tag-output"),
    flag(&["timeout"], &["SECONDS"], TimeLimit, "end the job after so long, with code 124 (MPIEXEC_TIMEOUT in the environment too)"),
    flag(&["q", "quiet"], &[], Quiet, "do not say which flags have no effect"),
    flag(&["v", "V", "version"], &[], Version, "tell the version"),
    flag(&["h", "help"], &[], Help, "tell this"),
    flag(&["allow-run-as-root", "enable-recovery", "continuous", "disable-auto-cleanup", "envall", "genvall", "use-hwthread-cpus", "nooversubscribe", "noprefix", "verbose"], &[], Granted, ""),
    flag(&["runtime-options", "prtemca", "pmixmca", "prefix", "envlist", "genvlist"], &["VALUE"], Granted, ""),
    flag(&["rank-by", "launcher", "launcher-exec", "iface", "rmk", "stdin", "personality", "display", "tune", "am", "cpu-set", "cpu-list", "topolib", "path", "report-uri", "dvm-uri", "output-filename"], &["VALUE"], NoEffect, ""),
    flag(&["report-bindings", "display-map", "display-allocation", "nolocal", "debug-daemons", "leave-session-attached", "do-not-launch", "xterm", "merge-stderr-to-stdout", "print-rank-map", "print-all-exitcodes"], &[], NoEffect, ""),
];

/// The flag that this word is, if it is one.
pub fn find(word: &str) -> Option<&'static Flag> {
    let name = word.strip_prefix('-')?;
    let name = name.strip_prefix('-').unwrap_or(name);
    FLAGS.iter().find(|flag| flag.names.contains(&name))
}

/// What was perhaps meant by a word that is no flag.
pub fn nearest(word: &str) -> Option<String> {
    let word = word.trim_start_matches('-');
    let names = FLAGS.iter().flat_map(|flag| flag.names);
    let near = names.map(|name| (strsim::jaro_winkler(word, name), name));
    let best = near.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(near, _)| *near > 0.85);
    best.map(|(_, name)| dashed(name))
}

/// The name as people write it.
pub fn dashed(name: &str) -> String {
    let dashes = if name.len() == 1 { "-" } else { "--" };
    format!("{dashes}{name}")
}

/// What `--help` says.
pub fn help() -> String {
    let mut out = String::from(
        "Starts a program as the ranks of an MPI job: mpiexec [FLAGS] PROG [ARGS] [: [FLAGS] PROG [ARGS] …]\n\
         A front of `ironweave run` that takes the flags of other launchers; one dash or two are the same.\n\n",
    );
    for flag in FLAGS.iter().filter(|flag| !flag.help.is_empty()) {
        let names: Vec<_> = flag.names.iter().map(|name| dashed(name)).collect();
        let words = [names.join(", "), flag.takes.join(" ")].join(" ");
        out.push_str(&format!("  {}\n        {}\n", words.trim_end(), flag.help));
    }
    let others = |meaning| {
        let flags = FLAGS.iter().filter(move |flag: &&Flag| flag.meaning == meaning);
        flags.flat_map(|flag| flag.names).map(|name| dashed(name)).collect::<Vec<_>>().join(" ")
    };
    out.push_str(&format!(
        "\nAccepted, and the case anyway: {}\nAccepted without effect: {}\n",
        others(Granted),
        others(NoEffect)
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<_> = FLAGS.iter().flat_map(|flag| flag.names).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn dashes_are_the_same_and_mistakes_are_guessed() {
        for word in ["-np", "--np", "-n"] {
            assert_eq!(find(word).map(|flag| flag.meaning), Some(Ranks), "{word}");
        }
        assert!(find("np").is_none() && find("---np").is_none() && find("-").is_none());
        assert_eq!(nearest("--oversubscibe").as_deref(), Some("--oversubscribe"));
        assert_eq!(nearest("--frobnicate"), None);
    }
}
