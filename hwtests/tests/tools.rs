//! What operators ask about devices, where there are some: `ironweave info`, `ironweave doctor`, and `iw-hwtest --device` as a
//! cluster has it, on the virtual machine's own devices.

mod support;

use ironweave_hwtests::fabric::{Fabric, HOSTS, TESTS, VM, Wire};
use ironweave_hwtests::job::Job;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{Given, has_library, skip};

fn given(test: &str) -> Option<Given> {
    support::given("tools", test)
}

/// As `given`, in the virtual machine, where all that is there is known.
fn known(test: &str) -> Option<Given> {
    let given = given(test)?;
    if std::env::var_os(VM).is_none() {
        return skip("tools", test, "what is there is known in the virtual machine only");
    }
    Some(given)
}

/// What `ironweave` says to `arguments`, with settings in its environment.
fn ask(arguments: &[&str], settings: &[(&str, &str)]) -> String {
    let programs = Job::programs().expect("the caller saw that programs are given");
    let mut command = Command::new(programs.join("ironweave"));
    let output = command.args(arguments).envs(settings.iter().copied()).stdin(Stdio::null());
    let output = output.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}{output:?}");
    said
}

/// `info`, without its parameters, and `doctor`, both with `parameter` set where one is given.
fn both(parameter: Option<(&str, &str)>) -> (String, String) {
    let (info, doctor) = match parameter {
        None => (ask(&["info"], &[]), ask(&["doctor"], &[])),
        Some((name, value)) => {
            let variable = format!("IRONWEAVE_{}", name.to_ascii_uppercase());
            let info = ask(&["info", "--mca", name, value], &[]);
            (info, ask(&["doctor"], &[(&variable, value)]))
        }
    };
    let components = info.split("\nParameters").next().unwrap_or_default().to_owned();
    println!("with {parameter:?}:\n{components}\n{doctor}");
    (components, doctor)
}

/// All devices that were given.
fn devices(fabric: &Fabric) -> Vec<&str> {
    fabric.hosts.iter().flatten().map(String::as_str).collect()
}

/// What `info` says of port 1 of `device`; `doctor` must say the same, at `level`.
fn of_port(said: &(String, String), device: &str, level: &str) -> String {
    let (info, doctor) = said;
    let start = format!("  verbs     {device}:1 (");
    let lines: Vec<&str> = info.lines().filter_map(|line| line.strip_prefix(&start)).collect();
    let &[words] = lines.as_slice() else { panic!("{device} is not named once: {info}") };
    let same = format!("{device}:1 ({words}");
    let subject = format!("verbs {device}:1 ");
    let agrees = |line: &str| {
        let begun = line.strip_prefix(level).map(str::trim_start);
        begun.is_some_and(|rest| rest.starts_with(&subject)) && line.ends_with(&same)
    };
    assert!(doctor.lines().any(agrees), "no line of {level} with {same:?}: {doctor}");
    words.to_owned()
}

fn is_used(words: &str) -> bool {
    words.ends_with("): used by verbs") || words.ends_with("): used by verbs, pages on demand")
}

/// Each port is named, with what it is, and used.
#[test]
fn every_port_is_named_and_used() {
    let Some((fabric, _alone)) = given("every_port_is_named_and_used") else { return };
    let said = both(None);
    let kind = match (fabric.is_iwarp(), std::env::var_os(VM)) {
        (true, _) => "iWARP, ",
        (false, Some(_)) => "RoCE, ",
        (false, None) => "", // InfiniBand or RoCE
    };
    for device in devices(&fabric) {
        let words = of_port(&said, device, "ok");
        assert!(words.starts_with(kind) && is_used(&words), "{device}: {words}");
    }
    let json = ask(&["info", "--json"], &[]);
    for device in devices(&fabric) {
        assert!(json.contains(&format!("\"port\": \"{device}:1\"")), "{json}");
    }
}

/// A port that is down, one that a parameter leaves out, and those that lack what a parameter asks for are not used, and why.
#[test]
fn a_port_that_is_not_used_says_why() {
    let Some((fabric, _alone)) = known("a_port_that_is_not_used_says_why") else { return };
    let Some(mut wire) = Wire::of(0, 1) else { return };
    let why = |said: &(String, String), device: &str| -> String {
        let words = of_port(said, device, "note");
        let (_, why) = words.split_once("): not used: ").expect(&words);
        why.to_owned()
    };
    // Of a pair of virtual interfaces both are down, where one is.
    wire.down();
    let said = both(Some(("btl_verbs_exclude", "rxe10")));
    assert!(is_used(&of_port(&said, "rxe00", "ok")));
    assert_eq!(why(&said, "rxe10"), "btl_verbs_exclude names it");
    for device in ["rxe01", "rxe11"] {
        assert!(why(&said, device).starts_with("it is DOWN, not ACTIVE ("), "{device}");
    }
    // And nothing else carries what is down.
    let gone = |line: &str| line.contains("rc_verbs on ") && line.contains("rxe01");
    assert!(!said.0.lines().any(gone), "{}", said.0);
    wire.up();
    let said = both(Some(("btl_verbs_include", "rxe01:1")));
    assert!(is_used(&of_port(&said, "rxe01", "ok")), "a mended wire's port");
    for device in ["rxe00", "rxe10", "rxe11"] {
        assert_eq!(why(&said, device), "btl_verbs_include does not name it");
    }
    for (name, value, words) in [
        ("btl_verbs_gid_index", "99", "it has no GID 99 (btl_verbs_gid_index)"),
        ("btl_verbs_pkey_index", "77", "it has no partition 77 (btl_verbs_pkey_index)"),
        ("btl", "self,tcp", "verbs is not among the transports (btl)"),
    ] {
        let said = both(Some((name, value)));
        for device in devices(&fabric) {
            assert_eq!(why(&said, device), words, "{device}");
        }
    }
}

/// libfabric's providers and UCX's transports over the devices are named, and which of ours takes them, or why none does.
#[test]
fn what_carries_devices_is_named() {
    let Some((fabric, _alone)) = known("what_carries_devices_is_named") else { return };
    let (info, doctor) = both(None);
    let ports: Vec<String> = devices(&fabric).iter().map(|device| format!("{device}:1")).collect();
    let (ports, devices) = (ports.join(", "), devices(&fabric).join(", "));
    let says = |text: &str, words: &[&str]| {
        let found = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "no line has {words:?}:\n{text}");
    };
    match has_library("IRONWEAVE_OFI_LIB", "libfabric.so.1") {
        true => {
            let used = format!("{devices}: used where ofi is (--mca btl self,ofi)");
            says(&info, &["  verbs;ofi_rxm ", &used]);
            says(&doctor, &["ok ", "ofi verbs;ofi_rxm ", &used]);
            // A job takes one provider.
            let second = "used where btl_ofi_provider_include names it: verbs;ofi_rxm comes first";
            says(&info, &["  tcp;ofi_rxm ", second]);
            says(&doctor, &["ok ", "ofi tcp;ofi_rxm ", second]);
            says(&info, &["  verbs;ofi_rxd ", "rxe00-dgram", ": refused: "]);
            says(&doctor, &["note ", "ofi verbs;ofi_rxd ", ": refused: "]);
        }
        false => says(&info, &["  ofi ", "not usable: ", "libfabric"]),
    }
    match has_library("IRONWEAVE_UCT_LIB", "libuct.so.0") {
        true => {
            let taken = format!("{ports}: taken where uct is named (--mca btl self,uct)");
            says(&info, &["  rc_verbs on ", &taken]);
            says(&doctor, &["ok ", "uct rc_verbs ", &taken]);
            let named =
                format!("{ports}: taken where it is named (--mca btl_uct_transports ud_verbs)");
            says(&info, &["  ud_verbs on ", &named]);
            says(&doctor, &["ok ", "uct ud_verbs ", &named]);
            // The version is libucp's to tell; that it was not asked made the library unusable once.
            says(&doctor, &["ok ", "libuct ", "libuct.so.0"]);
        }
        false => says(&info, &["  uct ", "not usable: ", "libuct"]),
    }
    assert!(doctor.ends_with("\n0 errors, 0 warnings\n"), "{doctor}");
}

/// A directory of the run's test binaries with these names, for `--tests`; gone with it.
struct Tests(PathBuf);

impl Tests {
    fn of(names: &[&str]) -> Tests {
        let all = std::env::var(TESTS).expect("the virtual machine is told what is tested");
        let directory = std::env::temp_dir().join(format!("iw-tools-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory); // an earlier test's
        std::fs::create_dir_all(&directory).expect("a directory for links");
        for path in all.split(':').map(Path::new) {
            let file = path.file_name().unwrap_or_default();
            if names.iter().any(|name| file.to_string_lossy().starts_with(name)) {
                std::os::unix::fs::symlink(path, directory.join(file)).expect("a link");
            }
        }
        Tests(directory)
    }

    /// `iw-hwtest` on `device`, as where nobody knows of a virtual machine: how it ended and what it said.
    fn run(&self, device: &str, words: &[&str]) -> (Output, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iw-hwtest"));
        command.arg("--tests").arg(&self.0);
        command.arg("--programs").arg(Job::programs().expect("the caller saw them"));
        command.args(["--device", device]).args(words).stdin(Stdio::null());
        for variable in [VM, HOSTS, TESTS] {
            command.env_remove(variable);
        }
        let output = command.output().expect("iw-hwtest starts");
        let both = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8_lossy(&both).into_owned();
        // Marked: it is not for who counts what this run's own tests say.
        println!("{words:?} on {device}: {:?}", output.status);
        said.lines().for_each(|line| println!("| {line}"));
        (output, said)
    }
}

impl Drop for Tests {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What needs no wire runs on a device that is named, jobs among it; what does is named, with the reason.
#[test]
fn tests_run_on_named_devices() {
    let Some((fabric, _alone)) = known("tests_run_on_named_devices") else { return };
    let tests = Tests::of(&["fabric-", "jobs-"]);
    let device = fabric.device(0, 0);
    let (output, said) = tests.run(device, &["a_job_recovers"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(said.contains("test a_job_recovers_from_a_killed_rank ... survivor "), "{said}");
    let wires = "there are no wires to cut outside of the virtual machine";
    assert!(
        said.contains(&format!("SKIP jobs/a_job_recovers_over_wires_that_lose: {wires}\n")),
        "{said}"
    );
    assert!(said.contains("SKIP verbs/iwarp: runs in the virtual machine only: "), "{said}");
    assert!(said.ends_with("iw-hwtest: 1 passed, 0 failed, 1 skipped, status 0\n"), "{said}");
}

/// A run of nothing is none, whether all is skipped, nothing has the name, or the device is not there.
#[test]
fn tests_that_cannot_run_are_told() {
    let Some((fabric, _alone)) = known("tests_that_cannot_run_are_told") else { return };
    let tests = Tests::of(&["fabric-"]);
    let device = fabric.device(0, 0);
    let (output, said) = tests.run(device, &["a_wire_is_cut_and_mended"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("SKIP hwtests/a_wire_is_cut_and_mended: there are no wires"), "{said}");
    assert!(said.contains("iw-hwtest: 0 passed, 0 failed, 1 skipped, status 0\n"), "{said}");
    assert!(said.ends_with("iw-hwtest: nothing ran\n"), "{said}");
    let (output, said) = tests.run(device, &["no_test_has_this_name"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.ends_with("iw-hwtest: nothing ran\n"), "{said}");
    let (output, said) = tests.run("nosuch0", &["devices_are_active"]);
    assert_eq!(output.status.code(), Some(1));
    let there = devices(&fabric).join(", ");
    assert_eq!(said, format!("iw-hwtest: no device nosuch0: there are {there}\n"));
}

/// Whoever hangs on a cluster's devices is told of, and ended with all that it started.
#[test]
fn tests_that_hang_are_ended() {
    let Some((fabric, _alone)) = known("tests_that_hang_are_ended") else { return };
    let tests = Tests::of(&["jobs-"]);
    let words = ["--limit", "2", "a_job_recovers_from_a_killed_rank"];
    let (output, said) = tests.run(fabric.device(0, 0), &words);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("==== the tests still run after 2 s (--limit):\n"), "{said}");
    assert!(said.contains("jobs-") && said.contains("status 124\n"), "{said}");
    // Ranks go when their launcher has gone.
    let deadline = Instant::now() + Duration::from_secs(60);
    while running("survive") {
        assert!(Instant::now() < deadline, "a rank of the job that was ended is left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a process of this name is there.
fn running(name: &str) -> bool {
    let entries = std::fs::read_dir("/proc").expect("the kernel lists processes");
    let comm = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("comm")).ok();
    entries.flatten().filter_map(comm).any(|comm| comm.trim() == name)
}
