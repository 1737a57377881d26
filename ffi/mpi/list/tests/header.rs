//! The installed headers compile without a warning in C and C++, are current, and say the same as the library's own
//! `abi.rs` and as another implementation of the ABI.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).expect(name)
}

/// Compiles a program from standard input; the words of the compiler if it does not like it.
fn compile(
    compiler: &str,
    arguments: &[&str],
    include: &Path,
    program: &str,
) -> Result<(), String> {
    let mut child = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only", "-I"])
        .arg(include)
        .args(arguments)
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a compiler, see ci/setup");
    let mut input = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut input, program.as_bytes()).expect("the compiler reads");
    drop(input);
    let output = child.wait_with_output().expect("the compiler ends");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// A constant of `abi.rs` and whether it is a handle or another word.
struct Constant {
    name: String,
    value: String,
    word: bool,
}

/// The constants of `abi.rs` that are written as numbers.
fn constants() -> Vec<Constant> {
    let mut found = Vec::new();
    for line in read("src/abi.rs").lines() {
        let line = line.trim();
        // `MPI_SUM = 0x21,` of a list of handles, or `pub const MPI_ERR_COMM: c_int = 5;`.
        let (name, value, word) = match line.strip_prefix("pub const ") {
            Some(rest) => {
                let Some((name, rest)) = rest.split_once(": ") else { continue };
                let Some((kind, value)) = rest.split_once(" = ") else { continue };
                (name, value.trim_end_matches(';'), kind == "usize")
            }
            None => {
                let Some((name, value)) = line.split_once(" = ") else { continue };
                (name, value.trim_end_matches(','), true)
            }
        };
        let is_number =
            value.strip_prefix('-').unwrap_or(value).starts_with(|c: char| c.is_ascii_digit());
        if name.starts_with("MPI") && is_number {
            found.push(Constant { name: name.into(), value: value.into(), word });
        }
    }
    found
}

/// A C program that holds only if every constant has its value.
fn assertions(include: &str, skip_extensions: bool) -> String {
    let constants = constants();
    assert!(constants.len() > 330, "{} constants found in abi.rs", constants.len());
    let mut program = format!("#include <{include}>\n#include <stddef.h>\n");
    for Constant { name, value, word } in constants {
        if skip_extensions && name.starts_with("MPIX_") {
            continue;
        }
        // GNU C takes a pointer that is a number for a constant.
        let cast = if word { "(size_t)" } else { "" };
        program += &format!("_Static_assert({cast}{name} == {value}, \"{name}\");\n");
    }
    program
        + "_Static_assert(sizeof(MPI_Status) == 32 && offsetof(MPI_Status, MPI_ERROR) == 8, \"MPI_Status\");\n\
        _Static_assert(sizeof(MPI_Aint) == sizeof(void *) && sizeof(MPI_Offset) == 8 && sizeof(MPI_Count) == 8, \"integers\");\n\
        int main(void) { return 0; }\n"
}

#[test]
fn either_header_comes_first_in_c_and_cplusplus() {
    let include = folder().join("include");
    let body = "int main(void) { MPI_Comm comm = MPI_COMM_NULL; MPI_Fint number = MPI_Comm_c2f(comm);\n\
                return MPI_ERR_REVOKED == MPIX_ERR_REVOKED ? (int)number : MPIX_Comm_revoke(comm); }\n";
    for headers in
        [&["mpi.h"][..], &["mpi-ext.h"], &["mpi.h", "mpi-ext.h"], &["mpi-ext.h", "mpi.h"]]
    {
        let lines: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
        for (compiler, arguments) in [
            ("cc", ["-std=c99", "-pedantic", "-xc"]),
            ("cc", ["-std=c11", "-pedantic", "-xc"]),
            ("c++", ["-std=c++11", "-pedantic", "-xc++"]),
            ("c++", ["-std=c++20", "-pedantic", "-xc++"]),
        ] {
            let result = compile(compiler, &arguments, &include, &format!("{lines}{body}"));
            assert!(result.is_ok(), "{headers:?} {arguments:?}: {}", result.unwrap_err());
        }
    }
}

#[test]
fn the_header_and_the_library_have_the_same_values() {
    let result = compile(
        "cc",
        &["-std=gnu11", "-xc"],
        &folder().join("include"),
        &assertions("mpi.h", false),
    );
    assert!(result.is_ok(), "{}", result.unwrap_err());
}

#[test]
fn another_implementation_of_the_abi_has_the_same_values() {
    let include = folder().join("../../.venv/mpich/include");
    if !include.join("mpi_abi.h").exists() {
        println!(
            "SKIP header/other_implementation: the mpich wheel is not in .venv/mpich (ci/peers)"
        );
        return;
    }
    let result = compile("cc", &["-std=gnu11", "-xc"], &include, &assertions("mpi_abi.h", true));
    assert!(result.is_ok(), "{}", result.unwrap_err());
}

#[test]
fn a_wrong_value_would_be_seen() {
    let include = folder().join("include");
    for wrong in
        [("MPI_ERR_COMM == 5,", "MPI_ERR_COMM == 6,"), ("MPI_SUM == 0x21,", "MPI_SUM == 0x22,")]
    {
        let program = assertions("mpi.h", false);
        assert!(program.contains(wrong.0));
        let result =
            compile("cc", &["-std=gnu11", "-xc"], &include, &program.replace(wrong.0, wrong.1));
        assert!(result.is_err(), "{wrong:?}");
    }
}

#[test]
fn the_headers_are_current() {
    use ironweave_abi_list::headers::{Parts, extensions, mpi};
    let functions = ironweave_abi_list::parse(&read("abi/functions.h")).expect("the list");
    let (types, ours) = (read("abi/types.h"), read("abi/extensions.h"));
    let parts = Parts { types: &types, extensions: &ours, version: env!("CARGO_PKG_VERSION") };
    assert!(read("include/mpi.h") == mpi(parts, &functions), "include/mpi.h: run ci/abi");
    assert!(
        read("include/mpi-ext.h") == extensions(parts, &functions),
        "include/mpi-ext.h: run ci/abi"
    );
}
