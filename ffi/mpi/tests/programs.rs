//! C programs of our own (`tests/c`), one for each chapter, built with the installed `mpicc`: each checks what calls give,
//! and what it prints is compared with what the same binary prints on another library of the standard ABI, where that is
//! installed (MPICH's, by `ci/setup`).

mod common;

use common::{compile, compile_source, installed, root, run};
use std::path::Path;
use std::process::{Command, Output};

fn ours(program: &Path, ranks: u32, environment: &[(&str, &str)]) -> Output {
    ours_with(program, &[], ranks, environment)
}

fn ours_with(program: &Path, told: &[&str], ranks: u32, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(installed().join("bin/mpiexec"));
    command.args(["-n", &ranks.to_string()]).arg(program).args(told);
    command.env("IRONWEAVE_WATCHDOG", "40").envs(environment.iter().copied());
    run(command, "the job")
}

/// Runs a chapter's program, and compares with the other library.
fn chapter(name: &str, flags: &[&str], ranks: u32) {
    let program = compile(name, flags);
    compare(name, &program, &[], ranks);
    std::fs::remove_file(program).expect("it was just made");
}

/// As `chapter`, of a program that is compiled, and told something.
fn compare(name: &str, program: &Path, told: &[&str], ranks: u32) {
    let output = ours_with(program, told, ranks, &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let oracle = root().join(".venv/mpich");
    if oracle.join("lib/libmpi_abi.so.1").exists() {
        let mut command = Command::new(oracle.join("bin/mpiexec"));
        command.args(["-n", &ranks.to_string()]).arg(program).args(told);
        command.env("LD_LIBRARY_PATH", oracle.join("lib"));
        let other = run(command, "the other library");
        assert_eq!(said, String::from_utf8_lossy(&other.stdout), "{name}: the libraries differ");
    } else {
        println!("SKIP abi_oracle_{name}_{ranks}: MPICH's libmpi_abi is not installed (ci/setup)");
    }
}

macro_rules! chapters {
    ($($test:ident: $name:literal $($flag:literal)* on $ranks:literal;)*) => {$(
        #[test]
        fn $test() {
            chapter($name, &[$($flag,)* "-lm"], $ranks);
        }
    )*

    /// What is compiled: programs and flags.
    const PROGRAMS: &[(&str, &[&str])] = &[$(($name, &[$($flag),*]),)*];
    };
}

chapters! {
    point_to_point_2: "p2p" on 2;
    point_to_point_4: "p2p" on 4;
    collectives_2: "collective" on 2;
    collectives_4: "collective" on 4;
    objects_1: "objects" on 1;
    objects_4: "objects" on 4;
    topologies_2: "topology" on 2;
    topologies_4: "topology" on 4;
    datatypes_1: "datatype" on 1;
    strided_messages_2: "datatype_messages" on 2;
    parts_2: "parts" on 2;
    parts_4: "parts" on 4;
    large_point_to_point_2: "p2p" "-DLARGE" on 2;
    large_collectives_2: "collective" "-DLARGE" on 2;
    large_collectives_4: "collective" "-DLARGE" on 4;
    large_topologies_4: "topology" "-DLARGE" on 4;
    between_groups_1: "between" on 1;
    between_groups_4: "between" on 4;
    environment_1: "environment" on 1;
    environment_3: "environment" on 3;
    sessions_1: "sessions" on 1;
    misuse_1: "misuse" on 1;
    misuse_2: "misuse" on 2;
    tool_interface_1: "tool" on 1;
    tool_interface_2: "tool" on 2;
}

/// Several sessions of several ranks, one after the other, hang with MPICH 5.0.2 (5 runs of 132): it is asked about one.
#[test]
fn sessions_3() {
    let program = compile("sessions", &["-lm"]);
    compare("sessions", &program, &["1"], 3);
    let output = ours(&program, 3, &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.contains("sessions, round 2: 0 wrong");
    assert!(output.status.success() && last, "{said}{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(program).expect("it was just made");
}

/// What others do not do, and cannot be compared.
#[test]
fn beyond_others_2() {
    let program = compile("ours", &[]);
    for btl in ["shm,self", "tcp,self"] {
        let output = ours(&program, 2, &[("IRONWEAVE_BTL", btl)]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(" 0 wrong"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// A member dies in the middle.
#[test]
fn ulfm() {
    let program = compile("ulfm", &[]);
    for (ranks, btl) in [(3, "shm,self"), (4, "shm,self"), (4, "tcp,self")] {
        let output = ours(&program, ranks, &[("IRONWEAVE_BTL", btl)]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains("ulfm: 0 wrong"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// Each call that waits or asks meets a killed process, and a revocation by another: it ends as the standard has it, and what concerns
/// others goes on.
#[test]
fn waits_are_interrupted() {
    let program = compile("interrupted", &[]);
    for btl in ["shm,self", "tcp,self"] {
        let output = ours(&program, 15, &[("IRONWEAVE_BTL", btl)]);
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("interrupted: 0 wrong"), "{said}{errors}");
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// Calls that are over at once, because this member has nothing to give or to wait for, end with an error all the same when another
/// has died.
#[test]
fn who_has_nothing_to_give_hears_of_a_death() {
    let text = "#include <mpi.h>\n#include <mpi-ext.h>\n#include <signal.h>\n#include <stdio.h>\n\
        int main(int c, char **v) { int rank, counts[3] = {0}, code, class; MPI_Request request; char way = *v[1];\n\
        MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n\
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);\n\
        if (way == 'p') MPI_Gatherv_init(0, 0, MPI_INT, 0, counts, counts, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);\n\
        MPI_Barrier(MPI_COMM_WORLD);\n\
        if (rank == 1) raise(SIGKILL);\n\
        do {\n\
          if (way == 'b') { code = MPI_Gatherv(0, 0, MPI_INT, 0, counts, counts, MPI_INT, 0, MPI_COMM_WORLD); continue; }\n\
          code = way == 'p' ? MPI_Start(&request)\n\
            : MPI_Igatherv(0, 0, MPI_INT, 0, counts, counts, MPI_INT, 0, MPI_COMM_WORLD, &request);\n\
          if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);\n\
        } while (code == MPI_SUCCESS);\n\
        MPI_Error_class(code, &class);\n\
        printf(\"%d\\n\", class == MPIX_ERR_PROC_FAILED);\n\
        return MPI_Finalize(); }\n";
    let program = compile_source("nothing", text, &[]);
    for way in ["blocking", "nonblocking", "persistent"] {
        let output = ours_with(&program, &[way], 3, &[]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n1\n", "{way}: {output:?}");
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// What a process printed arrives, whatever kills it; unless the user leaves the buffer to the C library.
#[test]
fn lines_outlive_who_printed_them() {
    let text = "#include <mpi.h>\n#include <signal.h>\n#include <stdio.h>\n\
        int main(int c, char **v) { int rank; MPI_Init(&c, &v);\n\
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n\
        if (rank == 1) { printf(\"last words\\n\"); raise(SIGKILL); }\n\
        return MPI_Finalize(); }\n";
    let program = compile_source("words", text, &[]);
    for (lines, expected) in [("on", "last words\n"), ("off", "")] {
        let output = ours(&program, 2, &[("IRONWEAVE_rte_line_buffered", lines)]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{lines}: {output:?}");
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// Errors end the job with their code and say where, by default.
#[test]
fn errors_are_fatal_by_default() {
    let text = "#include <mpi.h>\nint main(int c, char **v) { int x = 0; MPI_Init(&c, &v);\n\
                return MPI_Send(&x, 1, MPI_INT, 9, 0, MPI_COMM_WORLD); }\n";
    let program = compile_source("fatal", text, &[]);
    let output = ours(&program, 1, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}"); // MPI_ERR_RANK
    for part in ["rank 0", "MPI_Send", "MPI_COMM_WORLD", "MPI_ERR_RANK", "destination is 9"] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// `mpiexec -initial-errhandler`: the program begins with another error handler, and can ask for it.
#[test]
fn the_initial_error_handler_can_be_chosen() {
    let text = "#include <mpi.h>\n#include <stdio.h>\n\
        int main(int c, char **v) { int x = 0, flag, length = 64; char name[64];\n\
        MPI_Init(&c, &v);\n\
        MPI_Info_get_string(MPI_INFO_ENV, \"mpi_initial_errhandler\", &length, name, &flag);\n\
        x = MPI_Send(&x, 1, MPI_INT, 9, 0, MPI_COMM_WORLD);\n\
        printf(\"%s %d\\n\", flag ? name : \"none\", x == MPI_ERR_RANK);\n\
        return MPI_Finalize(); }\n";
    let program = compile_source("initial", text, &[]);
    let mut command = Command::new(installed().join("bin/mpiexec"));
    command.args(["-n", "2", "-initial-errhandler", "mpi_errors_return"]).arg(&program);
    let output = run(command, "the job");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "mpi_errors_return 1\n".repeat(2), "{output:?}");
    std::fs::remove_file(program).expect("it was just made");
}

/// Errors of no object are for the initial error handler where there is no world: with sessions only, and after `MPI_Finalize`. The
/// handler of an object to be made hears of everything that it does not come to be for.
#[test]
fn without_a_world_the_initial_error_handler_is_due() {
    let program = compile("worldless", &[]);
    for ranks in ["1", "2"] {
        let mut command = Command::new(installed().join("bin/mpiexec"));
        command.args(["-n", ranks, "-initial-errhandler", "mpi_errors_return"]).arg(&program);
        let output = run(command, "the job");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = ours(&program, 1, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "the initial error handler ends the job by default");
    assert!(said.contains("MPI_Comm_size on communicator 0x101: MPI_ERR_COMM"), "{said}");
    std::fs::remove_file(program).expect("it was just made");
}

/// A send that nobody receives ends when it is cancelled, and nobody sees its message; a message that is received is not cancelled.
/// (MPICH never cancels sends, so this is asked of ours alone.)
#[test]
fn sends_can_be_cancelled() {
    let text = "#include <mpi.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
        static int ended(MPI_Request *r) { MPI_Status s; int flag;\n\
        MPI_Cancel(r); MPI_Wait(r, &s); MPI_Test_cancelled(&s, &flag); return flag; }\n\
        int main(int c, char **v) { static char data[1000000]; int rank, flag, answers[4]; MPI_Request r;\n\
        MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n\
        if (rank == 0) {\n\
        MPI_Isend(data, 1000000, MPI_CHAR, 1, 7, MPI_COMM_WORLD, &r); answers[0] = ended(&r);\n\
        MPI_Issend(data, 1, MPI_CHAR, 1, 7, MPI_COMM_WORLD, &r); answers[1] = ended(&r);\n\
        MPI_Ssend_init(data, 9, MPI_CHAR, 1, 7, MPI_COMM_WORLD, &r); MPI_Start(&r); answers[2] = ended(&r);\n\
        MPI_Start(&r); MPI_Barrier(MPI_COMM_WORLD); MPI_Barrier(MPI_COMM_WORLD); answers[3] = ended(&r);\n\
        MPI_Request_free(&r);\n\
        printf(\"%d%d%d%d\\n\", answers[0], answers[1], answers[2], answers[3]);\n\
        } else {\n\
        MPI_Barrier(MPI_COMM_WORLD);\n\
        MPI_Recv(data, 9, MPI_CHAR, 0, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);\n\
        MPI_Barrier(MPI_COMM_WORLD);\n\
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);\n\
        if (flag) { printf(\"a message is left\\n\"); } }\n\
        return MPI_Finalize(); }\n";
    let program = compile_source("cancelled", text, &[]);
    for transport in ["self,shm", "self,tcp"] {
        let output = ours(&program, 2, &[("IRONWEAVE_BTL", transport)]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "1110\n", "{transport}: {}", String::from_utf8_lossy(&output.stderr));
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// `--with-ft`: programs can ask whether a failure ends the job.
#[test]
fn whether_failures_are_survived_is_told() {
    let text = "#include <mpi.h>\n#include <mpi-ext.h>\n#include <stdio.h>\n\
        int main(int c, char **v) { int *value, flag; MPI_Init(&c, &v);\n\
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &value, &flag);\n\
        printf(\"%d\\n\", flag ? *value : -1);\n\
        return MPI_Finalize(); }\n";
    let program = compile_source("survives", text, &[]);
    for (with, expected) in [("ulfm", "1\n"), ("mpi", "1\n"), ("none", "0\n")] {
        let mut command = Command::new(installed().join("bin/mpiexec"));
        command.args(["-n", "1", "--with-ft", with]).arg(&program);
        let output = run(command, "the job");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{with}: {output:?}");
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// Tools interpose: a preloaded library's `MPI_Send` is called, and calls ours by its other name.
#[test]
fn tools_interpose() {
    let tool = compile("pmpi", &["-shared", "-fPIC"]);
    let program = compile("p2p", &[]);
    let preload = tool.to_str().expect("a path of ours");
    let mut command = Command::new(installed().join("bin/mpiexec"));
    command.args(["-n", "2", "env"]).arg(format!("LD_PRELOAD={preload}")).arg(&program);
    let output = run(command, "the job");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // Three by name through a table of functions, which tools see too; those that are wrong count as well.
    assert!(said.contains("profiler: ") && !said.contains("profiler: 0 "), "{said}");
    std::fs::remove_file(program).expect("it was just made");
    std::fs::remove_file(tool).expect("it was just made");
}

/// Fortran's handles and the names that MPI 3.0 removed: the other library has neither.
#[test]
fn fortran_and_removed_names() {
    let program = compile("fortran", &[]);
    for ranks in [1, 2] {
        let output = ours(&program, ranks, &[]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(" 0 wrong"), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}");
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// Over a C library's transport the only thread of a program is not cancelled between `MPI_Init` and `MPI_Finalize`; one that is not the only one,
/// or waits in no C library, may be whenever it makes no call.
#[test]
fn who_has_other_threads_may_be_cancelled() {
    let program = compile("cancel", &["-lpthread"]);
    let check = |btl: &str, told: &[&str], inside: &str| {
        let output = ours_with(&program, told, 2, &[("IRONWEAVE_BTL", btl)]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let wanted = format!("cancelled: before yes, inside {inside}, after yes\n").repeat(2);
        assert_eq!(said, wanted, "{btl} {told:?}");
    };
    check("tcp,self", &[], "yes");
    match ironweave_ffi::ofi::Ofi::open() {
        Ok(_) => {
            check("ofi,self", &[], "no");
            check("ofi,self", &["funneled"], "yes");
            check("ofi,self", &["multiple"], "yes");
        }
        Err(why) => println!("SKIP abi/ofi/who_has_other_threads_may_be_cancelled: {why}"),
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// `MPI_Abort` ends every rank, with the code it was given.
#[test]
fn abort_ends_the_job() {
    let program = compile("abort", &[]);
    let output = ours(&program, 3, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(42), "{said}");
    assert!(said.contains("MPI_Abort on MPI_COMM_WORLD with code 42"), "{said}");
    std::fs::remove_file(program).expect("it was just made");
}

/// `MPI_Abort` of a communicator that not all are of, and `MPI_ERRORS_ABORT` on it, end its processes; the others see failures.
#[test]
fn abort_ends_who_is_of_the_communicator() {
    let program = compile("abort_some", &[]);
    for (how, btl) in [("abort", "shm,self"), ("handler", "tcp,self"), ("between", "shm,self")] {
        let mut command = Command::new(installed().join("bin/mpiexec"));
        command.args(["-n", "5"]).arg(&program).arg(how);
        command.env("IRONWEAVE_BTL", btl).env("IRONWEAVE_WATCHDOG", "40");
        let output = run(command, how);
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(said.matches("went on: 0 wrong").count(), 3, "{how}: {said}{errors}");
        assert!(output.status.success(), "{how}: {}: {errors}", output.status);
        assert!(errors.contains("aborts ranks 1,3 with code 7"), "{how}: {errors}");
    }
    // Where the first failure ends the job, this one does.
    let mut command = Command::new(installed().join("bin/mpiexec"));
    command.args(["--with-ft", "none", "-n", "5"]).arg(&program).arg("abort");
    let output = run(command, "the job");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{errors}");
    std::fs::remove_file(program).expect("it was just made");
}

/// Every function that is done is called by a program of `tests/c`: the programs' undefined symbols say by which.
#[test]
fn every_function_has_a_test() {
    let text = std::fs::read_to_string(root().join("docs/conformance.md"));
    let text = text.expect("docs/conformance.md is there");
    let mut done = true;
    let mut functions = Vec::new();
    for line in text.lines() {
        match line {
            "Done:" => done = true,
            "Not done:" => done = false,
            _ if done && line.starts_with("- `MPI") => {
                let mut names = line.split('`').skip(1).step_by(2);
                let name = names.next().expect("a line of the list names a function");
                functions.push(name.to_owned());
                functions.extend(names.map(|suffix| format!("{name}{suffix}")));
            }
            _ => {}
        }
    }
    assert!(functions.len() > 500, "the list of functions was not understood: {functions:?}");
    let more = ["ulfm", "fortran", "abort", "ours"].map(|name| (name, &[][..]));
    let mut called = std::collections::HashSet::new();
    for &(name, flags) in PROGRAMS.iter().chain(&more) {
        let program = compile(name, &[flags, &["-lm"]].concat());
        let symbols = Command::new("nm").args(["-D", "--undefined-only"]).arg(&program).output();
        let symbols = symbols.expect("nm runs: it comes with the linker").stdout;
        let symbols = String::from_utf8(symbols).expect("symbols are ASCII");
        called.extend(symbols.split_whitespace().map(str::to_owned));
        std::fs::remove_file(program).expect("it was just made");
    }
    let without: Vec<_> = functions.iter().filter(|name| !called.contains(*name)).collect();
    assert!(without.is_empty(), "no program of tests/c calls {without:?}");
}
