//! The library as it is installed: what it exports, under which name, and whether the tools around it do what other MPIs'
//! do. Lays out an installation of the library as built, in a folder of its own, as `ci/install` does.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// After this a program has hung.
const WATCHDOG: Duration = Duration::from_secs(60);

/// The library that cargo built beside this test.
fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has a path");
    let path = exe.with_file_name("libmpi_abi.so");
    assert!(path.exists(), "{} is not built", path.display());
    path
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// An installation that goes away with this value.
struct Prefix(PathBuf);

impl Prefix {
    fn new(name: &str) -> Prefix {
        let path = std::env::temp_dir().join(format!("ironweave-{name}-{}", std::process::id()));
        let prefix = Prefix(path);
        for folder in ["bin", "include", "lib/pkgconfig"] {
            std::fs::create_dir_all(prefix.0.join(folder)).expect("a folder");
        }
        symlink(library(), prefix.0.join("lib/libmpi_abi.so.1")).expect("a link");
        symlink("libmpi_abi.so.1", prefix.0.join("lib/libmpi_abi.so")).expect("a link");
        for header in ["mpi.h", "mpi-ext.h"] {
            symlink(source("include").join(header), prefix.0.join("include").join(header))
                .expect("a link");
        }
        let template = |from: &str, to: &str| {
            let text = std::fs::read_to_string(source(from)).expect(from);
            let text =
                text.replace("@CC@", "cc").replace("@CXX@", "c++").replace("@VERSION@", "1.2.3");
            std::fs::write(prefix.0.join(to), text).expect(to);
        };
        template("tools/mpicc", "bin/mpicc");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(prefix.0.join("bin/mpicc"), executable).expect("chmod");
        symlink("mpicc", prefix.0.join("bin/mpicxx")).expect("a link");
        template("tools/mpi.pc", "lib/pkgconfig/mpi.pc");
        prefix
    }

    /// A file of this installation.
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What `program` of this installation prints.
    fn prints(&self, program: &str, arguments: &[&str]) -> String {
        let output = run(Command::new(self.path("bin").join(program)).args(arguments));
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Compiles `text` to `name`.
    fn compile(&self, wrapper: &str, text: &str, name: &str, arguments: &[&str]) -> PathBuf {
        let file = self.path(name).with_extension(if wrapper == "mpicc" { "c" } else { "cc" });
        std::fs::write(&file, text).expect("a source");
        let target = self.path(name);
        let mut command = Command::new(self.path("bin").join(wrapper));
        let output =
            run(command.args(["-Wall", "-Werror", "-o"]).arg(&target).arg(&file).args(arguments));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target
    }
}

impl Drop for Prefix {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command under the watchdog.
fn run(command: &mut Command) -> Output {
    use std::process::Stdio;
    // What may be set here must not decide what the wrappers call.
    for name in ["IRONWEAVE_CC", "IRONWEAVE_CXX", "MPICH_CC", "MPICH_CXX", "OMPI_CC", "OMPI_CXX"] {
        if !command.get_envs().any(|(set, _)| set == name) {
            command.env_remove(name);
        }
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (pid, deadline) = (child.id() as i32, Instant::now() + WATCHDOG);
    let (sender, done) = std::sync::mpsc::channel();
    let collector = std::thread::spawn(move || {
        let output = child.wait_with_output().expect("a child ends");
        let _ = sender.send(());
        output
    });
    if done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err() {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        panic!("{command:?} did not end: {:?}", collector.join());
    }
    collector.join().expect("the collector does not panic")
}

fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn the_library_exports_the_list_and_nothing_else() {
    if !is_there("nm") {
        println!("SKIP installed/exports: there is no nm (binutils)");
        return;
    }
    let list = std::fs::read_to_string(source("abi/functions.h")).expect("functions.h");
    let functions = ironweave_abi_list::parse(&list).expect("the list");
    let names = functions
        .iter()
        .flat_map(|function| [function.name.clone(), format!("P{}", function.name)]);
    let expected: BTreeSet<String> = names.collect();
    let output = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let exported: BTreeSet<String> =
        text.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    let missing: Vec<_> = expected.difference(&exported).collect();
    let surplus: Vec<_> = exported.difference(&expected).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "missing {missing:?}, not in the list {surplus:?}"
    );
}

#[test]
fn the_library_has_the_name_that_programs_look_for_and_stays() {
    if !is_there("readelf") {
        println!("SKIP installed/soname: there is no readelf (binutils)");
        return;
    }
    let output = run(Command::new("readelf").arg("-d").arg(library()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("soname: [libmpi_abi.so.1]"), "{text}");
    assert!(text.contains("NODELETE"), "{text}");
}

#[test]
fn the_wrappers_tell_what_they_do() {
    let prefix = Prefix::new("wrappers");
    let at = prefix.0.display().to_string();
    let compile = format!("-I{at}/include");
    let link = format!("-L{at}/lib -Wl,-rpath,{at}/lib -Wl,--enable-new-dtags -lmpi_abi");
    for (program, arguments, expected) in [
        ("mpicc", &["-show"][..], format!("cc {compile} {link}")),
        ("mpicc", &["-showme"], format!("cc {compile} {link}")),
        ("mpicc", &["-show", "-c", "x.c"], format!("cc -c x.c {compile}")),
        ("mpicc", &["x.c", "-o", "x", "-show"], format!("cc x.c -o x {compile} {link}")),
        ("mpicxx", &["-show"], format!("c++ {compile} {link}")),
        ("mpicc", &["-showme:compile"], compile.clone()),
        ("mpicc", &["-showme:link"], link.clone()),
        ("mpicc", &["--showme:incdirs"], format!("{at}/include")),
        ("mpicc", &["-showme:libdirs"], format!("{at}/lib")),
        ("mpicc", &["-showme:libs"], "mpi_abi".to_owned()),
        ("mpicc", &["-showme:version"], "mpicc (Ironweave) 1.2.3".to_owned()),
        ("mpicc", &["-compile_info"], format!("cc {compile}")),
        ("mpicc", &["-link_info"], format!("cc {compile} {link}")),
        ("mpicc", &["-cc=clang", "-compile-info"], format!("clang {compile}")),
    ] {
        assert_eq!(prefix.prints(program, arguments), expected, "{program} {arguments:?}");
    }
    for name in ["IRONWEAVE_CC", "MPICH_CC", "OMPI_CC"] {
        let output =
            run(Command::new(prefix.path("bin/mpicc")).arg("-showme:command").env(name, "my cc"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "my cc\n", "{name}");
    }
    for wrong in [&["-showme:nonsense"][..], &[]] {
        assert!(
            !run(Command::new(prefix.path("bin/mpicc")).args(wrong)).status.success(),
            "{wrong:?}"
        );
    }
    // Asking the compiler something links nothing.
    assert!(run(Command::new(prefix.path("bin/mpicc")).arg("-v")).status.success());
}

const ALONE: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    int main(int argc, char **argv) {\n\
        int rank = -1, size = -1, version = 0, sub = 0;\n\
        MPI_Init(&argc, &argv);\n\
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n\
        MPI_Comm_size(MPI_COMM_WORLD, &size);\n\
        MPI_Get_version(&version, &sub);\n\
        printf(\"%d of %d, MPI %d.%d\\n\", rank, size, version, sub);\n\
        return MPI_Finalize();\n\
    }\n";

#[test]
fn programs_in_c_and_cplusplus_find_the_library_again() {
    let prefix = Prefix::new("programs");
    for wrapper in ["mpicc", "mpicxx"] {
        let program = prefix.compile(wrapper, ALONE, &format!("alone-{wrapper}"), &[]);
        let output = run(&mut Command::new(program));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0 of 1, MPI 5.0\n", "{output:?}");
    }
}

#[test]
fn a_profiler_interposes() {
    let prefix = Prefix::new("profiler");
    let program = prefix.compile("mpicc", ALONE, "alone", &[]);
    let profiler = "#include <mpi.h>\n#include <stdio.h>\n\
        static int calls;\n\
        int MPI_Comm_rank(MPI_Comm comm, int *rank) { calls++; return PMPI_Comm_rank(comm, rank); }\n\
        int MPI_Finalize(void) { fprintf(stderr, \"%d call\\n\", calls); return PMPI_Finalize(); }\n";
    let profiler = prefix.compile("mpicc", profiler, "profiler.so", &["-shared", "-fPIC"]);
    let output = run(Command::new(program).env("LD_PRELOAD", profiler));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 of 1, MPI 5.0\n", "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "1 call\n", "{output:?}");
}

#[test]
fn pkg_config_finds_the_library() {
    if !is_there("pkg-config") {
        println!("SKIP installed/pkg_config: there is no pkg-config");
        return;
    }
    let prefix = Prefix::new("pkgconfig");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "mpi"])
        .env("PKG_CONFIG_PATH", prefix.path("lib/pkgconfig")));
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    let (source, program) = (prefix.path("alone.c"), prefix.path("alone"));
    std::fs::write(&source, ALONE).expect("a source");
    let output =
        run(Command::new("cc").arg(source).arg("-o").arg(&program).args(flags.split_whitespace()));
    assert!(output.status.success(), "{flags}: {output:?}");
    assert_eq!(
        String::from_utf8_lossy(&run(&mut Command::new(program)).stdout),
        "0 of 1, MPI 5.0\n"
    );
}

#[test]
fn cmake_finds_the_library() {
    if !is_there("cmake") {
        println!("SKIP installed/cmake: there is no cmake");
        return;
    }
    let prefix = Prefix::new("cmake");
    let project = prefix.path("project");
    std::fs::create_dir_all(&project).expect("a folder");
    std::fs::write(project.join("alone.c"), ALONE).expect("a source");
    let text = "cmake_minimum_required(VERSION 3.10)\nproject(alone C CXX)\nfind_package(MPI 5.0 REQUIRED COMPONENTS C CXX)\n\
                add_executable(alone alone.c)\ntarget_link_libraries(alone MPI::MPI_C)\n";
    std::fs::write(project.join("CMakeLists.txt"), text).expect("a project");
    let path =
        format!("{}:{}", prefix.path("bin").display(), std::env::var("PATH").unwrap_or_default());
    for arguments in [&["-B", "build", "."][..], &["--build", "build"]] {
        let output =
            run(Command::new("cmake").args(arguments).current_dir(&project).env("PATH", &path));
        assert!(output.status.success(), "{output:?}");
    }
    let output = run(&mut Command::new(project.join("build/alone")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 of 1, MPI 5.0\n");
}
