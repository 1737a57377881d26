//! `mpiexec` and `mpirun`: a front of `ironweave run` that takes the flags of the launchers people know, so that their
//! scripts run unchanged. What a flag asks for and does not get is said, once, and an unknown flag is an error (law 10).
//!
//! Arguments in, [`Options`] out; starts nothing.

mod flags;
mod hosts;
mod parameters;

use crate::launch::messages::{App, Bind};
use crate::launch::placement::{self, Host};
use crate::launch::run::Options;
use flags::Meaning;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// What the arguments ask for.
#[derive(Debug)]
pub enum Ask {
    /// Run this job, and say this first.
    Run(Box<Options>, Vec<String>),
    /// Print this.
    Print(String),
}

/// Whether a program of this name is `mpiexec`.
pub fn is_name(argument: &Path) -> bool {
    let name = argument.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name.split('.').next(), Some("mpiexec" | "mpirun"))
}

/// Seconds until a job is ended that has no `--timeout`, as with MPICH's launcher.
const TIME_LIMIT_VARIABLE: &str = "MPIEXEC_TIMEOUT";

/// Reads arguments, without the command's own name, and what the environment says beside them.
///
/// # Errors
/// In words for the person who wrote them.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Ask, String> {
    let mut ask = parse(arguments)?;
    if let (Ask::Run(options, _), Some(limit)) = (&mut ask, std::env::var_os(TIME_LIMIT_VARIABLE))
        && options.time_limit.is_none()
    {
        let limit = limit.to_string_lossy();
        let seconds = limit.parse().ok().filter(|seconds| *seconds > 0);
        let seconds = seconds.ok_or_else(|| {
            format!("{TIME_LIMIT_VARIABLE} is a number of seconds from 1, not {limit:?}")
        })?;
        options.time_limit = Some(Duration::from_secs(seconds));
    }
    Ok(ask)
}

/// Reads arguments.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Ask, String> {
    let mut request = Request::default();
    let mut words = arguments.into_iter().peekable();
    loop {
        let mut app = AppRequest::default();
        while let Some(word) = words.next_if(|word| word.to_string_lossy().starts_with('-')) {
            let word = word.to_string_lossy();
            let flag = flags::find(&word).ok_or_else(|| unknown(&word))?;
            let mut values = Vec::new();
            for what in flag.takes {
                let value = words.next().ok_or_else(|| format!("{word} needs {what}"))?;
                values.push(value.to_string_lossy().into_owned());
            }
            let given = Given { word: &word, meaning: flag.meaning, values: &values };
            if let Some(text) = request.take(&mut app, &given)? {
                return Ok(Ask::Print(text));
            }
        }
        let Some(program) = words.next().filter(|word| word != ":") else {
            return Err("no program is named; --help tells the flags".to_owned());
        };
        let mut more = false;
        let args = words.by_ref().take_while(|word| {
            more = word == ":";
            !more
        });
        request.apps.push(app.with(program, args.collect()));
        if !more {
            return request.finish();
        }
    }
}

fn unknown(word: &str) -> String {
    match flags::nearest(word) {
        Some(near) => format!("unknown flag {word}; did you mean {near}?"),
        None => format!("unknown flag {word}; --help tells the known ones"),
    }
}

/// A flag as given.
struct Given<'a> {
    word: &'a str,
    meaning: Meaning,
    values: &'a [String],
}

impl Given<'_> {
    fn number(&self) -> Result<u32, String> {
        let number = self.values[0].parse().ok().filter(|number| *number > 0);
        number
            .ok_or_else(|| format!("{} takes a number from 1, not {:?}", self.word, self.values[0]))
    }
}

/// What flags ask of the whole job.
#[derive(Default)]
struct Request {
    apps: Vec<(Option<u32>, App)>,
    hosts: Vec<Host>,
    per_host: Option<u32>,
    stretch: bool,
    agent: Option<String>,
    bind: Option<Bind>,
    tag: bool,
    kill: bool,
    time_limit: Option<Duration>,
    mca: Vec<(String, String)>,
    quiet: bool,
    notes: Vec<String>,
}

/// What flags ask of one program.
#[derive(Default)]
struct AppRequest {
    ranks: Option<u32>,
    env: Vec<(OsString, OsString)>,
    directory: Option<OsString>,
}

impl AppRequest {
    fn with(self, program: OsString, args: Vec<OsString>) -> (Option<u32>, App) {
        let AppRequest { ranks, env, directory } = self;
        (ranks, App { ranks: ranks.unwrap_or(1), program, args, env, directory })
    }
}

impl Request {
    /// Takes a flag; returns what to print instead of running anything.
    fn take(&mut self, app: &mut AppRequest, given: &Given<'_>) -> Result<Option<String>, String> {
        let value = given.values.first().map_or("", String::as_str);
        match given.meaning {
            Meaning::Ranks => app.ranks = Some(given.number()?),
            Meaning::Hosts => {
                let hosts = placement::parse_hosts(value);
                self.hosts = hosts.map_err(|why| format!("{}: {why}", given.word))?;
            }
            Meaning::HostFile => {
                let text = std::fs::read_to_string(value)
                    .map_err(|error| format!("{} {value}: {error}", given.word))?;
                self.hosts = hosts::parse(&text).map_err(|why| format!("{value}: {why}"))?;
            }
            Meaning::PerHost => self.per_host = Some(given.number()?),
            // A name alone is passed on with everything else that is set.
            Meaning::Export => {
                let pair = value.split_once('=');
                app.env.extend(pair.map(|(name, value)| (name.into(), value.into())));
            }
            Meaning::Variable => app.env.push((value.into(), given.values[1].as_str().into())),
            Meaning::Directory => app.directory = Some(value.into()),
            Meaning::BindTo => match value {
                "none" => self.bind = Some(Bind::None),
                "core" | "hwthread" => self.bind = Some(Bind::Core),
                _ => self.note(format!("{} {value} has no effect: cores or none", given.word)),
            },
            Meaning::MapBy => self.map_by(given.word, value),
            Meaning::Oversubscribe => self.stretch = true,
            Meaning::Agent => self.agent = Some(value.to_owned()),
            Meaning::FaultTolerance => match value.to_ascii_lowercase().as_str() {
                "ulfm" | "mpi" | "yes" | "true" | "on" | "1" => self.kill = false,
                "none" | "no" | "false" | "off" | "0" => self.kill = true,
                _ => return Err(format!("{} takes ulfm, mpi or none, not {value:?}", given.word)),
            },
            Meaning::EndOnFailure => self.kill = true,
            Meaning::InitialHandler => match value.to_ascii_lowercase().as_str() {
                known @ ("mpi_errors_are_fatal" | "mpi_errors_abort" | "mpi_errors_return") => {
                    app.env.push(("IRONWEAVE_INITIAL_ERRHANDLER".into(), known.into()));
                }
                _ => {
                    let word = given.word;
                    return Err(format!(
                        "{word} takes mpi_errors_are_fatal, mpi_errors_abort or mpi_errors_return, not {value:?}"
                    ));
                }
            },
            Meaning::Parameter => {
                let taken = parameters::take(value, &given.values[1])?;
                self.mca.extend(taken.pair);
                self.notes.extend(taken.note);
            }
            Meaning::Tag => self.tag = true,
            Meaning::TagKind if value == "tag" => self.tag = true,
            Meaning::TimeLimit => {
                self.time_limit = Some(Duration::from_secs(given.number()?.into()))
            }
            Meaning::Quiet => self.quiet = true,
            Meaning::Version => {
                return Ok(Some(format!("mpiexec (Ironweave) {}\n", env!("CARGO_PKG_VERSION"))));
            }
            Meaning::Help => return Ok(Some(flags::help())),
            Meaning::Granted => {}
            Meaning::TagKind | Meaning::NoEffect => {
                self.note(
                    format!("{} {value}", given.word).trim_end().to_owned() + " has no effect",
                );
            }
        }
        Ok(None)
    }

    /// `ppr:N:node`, `node`, `:oversubscribe`, …
    fn map_by(&mut self, word: &str, value: &str) {
        let value = value.to_ascii_lowercase();
        let mut parts = value.split([':', ',']).filter(|part| !part.is_empty());
        while let Some(part) = parts.next() {
            match part {
                "oversubscribe" => self.stretch = true,
                // How ranks are mapped anyway.
                "slot" | "nooversubscribe" | "core" | "hwtcpus" => {}
                "ppr" => {
                    let number = parts.next().and_then(|number| number.parse().ok());
                    match (number, parts.next()) {
                        (Some(number), Some("node")) if number > 0 => self.per_host = Some(number),
                        _ => self.note(format!("{word} {value} has no effect: ppr:N:node")),
                    }
                }
                _ => self.note(format!("{word} {value} has no effect: ranks fill hosts in order")),
            }
        }
    }

    fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    fn finish(mut self) -> Result<Ask, String> {
        if let Some(number) = self.per_host {
            self.hosts.iter_mut().for_each(|host| host.slots = number);
        }
        let slots = self.hosts.iter().fold(0u32, |sum, host| sum.saturating_add(host.slots));
        if let ([(ranks @ None, app)], 1..) = (&mut self.apps[..], slots) {
            (*ranks, app.ranks) = (Some(slots), slots);
        }
        let size = self.apps.iter().fold(0u32, |sum, (_, app)| sum.saturating_add(app.ranks));
        if self.stretch && !self.hosts.is_empty() {
            hosts::stretch(&mut self.hosts, size);
        }
        if self.kill {
            // For programs that ask whether failures can be survived.
            let told = ("IRONWEAVE_END_ON_FAILURE".into(), "1".into());
            self.apps.iter_mut().for_each(|(_, app)| app.env.push(told.clone()));
        }
        let options = Options {
            apps: self.apps.into_iter().map(|(_, app)| app).collect(),
            hosts: self.hosts,
            agent: self.agent.unwrap_or_else(|| crate::launch::SSH.to_owned()),
            port: 0,
            bind: self.bind,
            tag_output: self.tag,
            kill_on_failure: self.kill,
            time_limit: self.time_limit,
            mca: self.mca,
        };
        let notes = if self.quiet { Vec::new() } else { self.notes };
        Ok(Ask::Run(Box::new(options), notes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Ask, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[track_caller]
    fn run(line: &str) -> (Options, Vec<String>) {
        match read(line) {
            Ok(Ask::Run(options, notes)) => (*options, notes),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn names_that_are_mpiexec() {
        for (name, is) in [
            ("/usr/bin/mpiexec", true),
            ("mpirun", true),
            ("mpiexec.ironweave", true),
            ("ironweave", false),
            ("/mpiexec/ironweave", false),
        ] {
            assert_eq!(is_name(Path::new(name)), is, "{name}");
        }
    }

    #[test]
    fn the_number_of_ranks() {
        for (line, ranks) in [
            ("prog", 1),
            ("-n 4 prog", 4),
            ("-np 4 prog -n 5", 4),
            ("--np 3 --allow-run-as-root --oversubscribe prog", 3),
            ("-host a:2,b:3 prog", 5),
            ("-host a,b -ppn 4 prog", 8),
            ("-host a,b --map-by ppr:2:node prog", 4),
            ("-host a,b -n 2 prog", 2),
        ] {
            let (options, notes) = run(line);
            assert_eq!((options.apps.len(), options.apps[0].ranks), (1, ranks), "{line}");
            assert!(notes.is_empty(), "{line}: {notes:?}");
        }
    }

    #[test]
    fn everything_after_the_program_is_its_own() {
        let (options, _) = run("-n 2 ./a.out -n 7 --mca x y -- z");
        assert_eq!(options.apps[0].program, "./a.out");
        assert_eq!(options.apps[0].args, ["-n", "7", "--mca", "x", "y", "--", "z"]);
    }

    #[test]
    fn several_programs() {
        let (options, _) = run("-n 1 -env A 1 ./a x : -n 2 --wdir /tmp -x B=2 ./b : ./c");
        let apps: Vec<_> =
            options.apps.iter().map(|app| (app.ranks, app.program.to_str().unwrap())).collect();
        assert_eq!(apps, [(1, "./a"), (2, "./b"), (1, "./c")]);
        assert_eq!(options.apps[0].env, [("A".into(), "1".into())]);
        assert_eq!(options.apps[1].env, [("B".into(), "2".into())]);
        assert_eq!(options.apps[1].directory.as_deref(), Some("/tmp".as_ref()));
        assert!(options.apps[2].env.is_empty());
    }

    #[test]
    fn what_flags_set() {
        let (options, notes) =
            run("--with-ft ulfm --bind-to none -l --timeout 90 --mca btl tcp,self prog");
        assert!(notes.is_empty(), "{notes:?}");
        assert!(!options.kill_on_failure && options.tag_output);
        assert_eq!(options.bind, Some(Bind::None));
        assert_eq!(options.time_limit, Some(Duration::from_secs(90)));
        assert_eq!(options.mca, [("btl".into(), "tcp,self".into())]);
        let (options, _) = run("--with-ft none -H a:1,b:1 --oversubscribe -np 6 prog");
        assert!(options.kill_on_failure);
        let (options, _) = run("-initial-errhandler MPI_ERRORS_RETURN prog");
        let handler = ("IRONWEAVE_INITIAL_ERRHANDLER".into(), "mpi_errors_return".into());
        assert_eq!(options.apps[0].env, [handler]);
        let (options, _) = run("--with-ft none -H a:1,b:1 --oversubscribe -np 6 prog");
        assert_eq!(options.hosts.iter().map(|host| host.slots).collect::<Vec<_>>(), [3, 3]);
    }

    #[test]
    fn flags_without_effect_are_said_unless_asked_not_to() {
        for (line, word) in [
            ("--map-by socket prog", "--map-by socket"),
            ("--rank-by core prog", "--rank-by core"),
            ("--report-bindings prog", "--report-bindings"),
            ("--bind-to socket prog", "--bind-to socket"),
            ("--mca pml ucx prog", "pml ucx"),
            ("--mca mtl_ofi_x 1 prog", "mtl_ofi_x"),
        ] {
            let (_, notes) = run(line);
            assert_eq!(notes.len(), 1, "{line}: {notes:?}");
            assert!(notes[0].contains(word), "{line}: {notes:?}");
            assert!(run(&format!("-q {line}")).1.is_empty());
        }
    }

    #[test]
    fn mistakes_are_told_in_words() {
        for (line, words) in [
            ("", "no program"),
            ("-n 2", "no program"),
            ("-n 2 a :", "no program"),
            ("-n 2 : b", "no program"),
            ("-n zero a", "-n takes a number from 1, not \"zero\""),
            ("-n 0 a", "-n takes a number from 1"),
            ("-n", "-n needs N"),
            ("-genv A", "-genv needs VALUE"),
            ("--oversubscibe a", "did you mean --oversubscribe?"),
            ("--frobnicate a", "unknown flag --frobnicate"),
            ("--with-ft maybe a", "takes ulfm, mpi or none"),
            ("-initial-errhandler mine a", "takes mpi_errors_are_fatal"),
            ("--host a:0 a", "slots"),
            ("--hostfile /no/such/file a", "/no/such/file"),
            ("--mca btl_tcp_links many a", "whole number"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn help_and_version_print() {
        for (line, word) in
            [("--version", "Ironweave"), ("-h", "--hostfile"), ("-n 2 -V x", "Ironweave")]
        {
            match read(line) {
                Ok(Ask::Print(text)) => assert!(text.contains(word), "{line}: {text}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }
}
