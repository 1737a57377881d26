//! The installed headers: `mpi.h` is the types, all prototypes of the standard and their profiling names; `mpi-ext.h` is
//! what is ours. Each may be included first, and `mpi.h` ends by including the other.

use crate::Function;
use std::fmt::Write;

/// The parts of the headers that are written by hand.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// `types.h`.
    pub types: &'a str,
    /// `extensions.h`.
    pub extensions: &'a str,
    /// The library's version.
    pub version: &'a str,
}

/// `mpi.h`.
pub fn mpi(parts: Parts<'_>, functions: &[Function]) -> String {
    let types = parts.types.replace("@VERSION@", parts.version);
    let mut out = begin("MPI_H_IRONWEAVE", &types);
    open(&mut out);
    prototypes(&mut out, functions, false);
    close(&mut out);
    out.push_str("\n#include \"mpi-ext.h\"\n\n#endif\n");
    out
}

/// `mpi-ext.h`.
pub fn extensions(parts: Parts<'_>, functions: &[Function]) -> String {
    let mut out = begin("MPI_EXT_H_IRONWEAVE", "#include \"mpi.h\"\n\n");
    out.push_str(parts.extensions);
    out.push('\n');
    open(&mut out);
    prototypes(&mut out, functions, true);
    close(&mut out);
    out.push_str("\n#endif\n");
    out
}

fn begin(guard: &str, text: &str) -> String {
    format!(
        "/* SPDX-License-Identifier: Apache-2.0 OR MIT */\n\
         /* Made from ffi/mpi/abi by `ci/abi`; edit there. */\n\
         #ifndef {guard}\n#define {guard}\n\n{text}"
    )
}

fn open(out: &mut String) {
    out.push_str("\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
}

fn close(out: &mut String) {
    out.push_str("\n#ifdef __cplusplus\n}\n#endif\n");
}

fn prototypes(out: &mut String, functions: &[Function], extension: bool) {
    for prefix in ["", "P"] {
        let mut chapter = "";
        for function in functions.iter().filter(|function| function.extension == extension) {
            if chapter != function.chapter {
                chapter = &function.chapter;
                let profiling = if prefix.is_empty() { "" } else { ", for profiling" };
                let _ = writeln!(out, "\n/* {chapter}{profiling}. */");
            }
            let _ = writeln!(out, "{}", function.prototype(&format!("{prefix}{}", function.name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_is_declared_under_both_names_in_one_header() {
        let functions = crate::parse(include_str!("../../abi/functions.h")).unwrap();
        let parts = Parts { types: "", extensions: "", version: "1" };
        let (mpi, ours) = (mpi(parts, &functions), extensions(parts, &functions));
        for function in &functions {
            let (here, there) = if function.extension { (&ours, &mpi) } else { (&mpi, &ours) };
            for name in [function.name.clone(), format!("P{}", function.name)] {
                let declared = [' ', '*'].map(|before| format!("{before}{name}("));
                let count = |text: &str| {
                    declared.iter().map(|word| text.matches(word.as_str()).count()).sum::<usize>()
                };
                assert_eq!((count(here), count(there)), (1, 0), "{name}");
            }
        }
    }
}
