//! Stubs for the functions that no source defines: both names exported, and nothing done but to say so.
//!
//! Made at every build, so a function is never missing and a definition needs no second place where it is announced.

use crate::{Function, Parameter};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Rust source of the stubs, for a module of the library.
pub fn render(functions: &[Function], defined: &BTreeSet<String>) -> String {
    let mut out = String::new();
    for function in functions.iter().filter(|function| !defined.contains(&function.name)) {
        for (name, symbol) in [("plain", ""), ("profiled", "P")] {
            stub(&mut out, function, name, &format!("{symbol}{}", function.name));
        }
    }
    out
}

fn stub(out: &mut String, function: &Function, name: &str, symbol: &str) {
    let nothing = String::new();
    let (parameters, returns, body) = match function.returns.as_str() {
        "int" if function.name.starts_with("MPI_T_") => {
            (nothing, "c_int", "crate::abi::MPI_T_ERR_NOT_SUPPORTED".to_owned())
        }
        "int" => {
            let (parameters, target) = target(function);
            let body = format!("crate::error::unsupported({:?}, {target})", function.name);
            (parameters, "c_int", body)
        }
        "double" => (nothing, "f64", "0.0".to_owned()),
        "MPI_Fint" => (nothing, "c_int", "0".to_owned()),
        // Words: handles, of which none is zero, and addresses.
        _ => (nothing, "usize", "0".to_owned()),
    };
    let _ = write!(
        out,
        "const _: () = {{\n\
         \x20   #[unsafe(export_name = {symbol:?})]\n\
         \x20   extern \"C\" fn {name}({parameters}) -> {returns} {{ {body} }}\n\
         }};\n"
    );
}

/// The parameters up to the object whose error handler is told, and that object. What comes after is not looked at, so it
/// need not be declared.
fn target(function: &Function) -> (String, String) {
    let mut parameters: Vec<&str> = Vec::new();
    for parameter in &function.parameters {
        let Parameter::Named { kind, brackets, .. } = parameter else { break };
        let kind = if brackets.is_empty() { kind.as_str() } else { "*" };
        let variant = match kind {
            "MPI_Comm" => Some("Comm"),
            "MPI_Session" => Some("Session"),
            "MPI_Win" => Some("Win"),
            "MPI_File" => Some("File"),
            _ => None,
        };
        if let Some(variant) = variant {
            let mut text = String::new();
            for (index, kind) in parameters.iter().enumerate() {
                let _ = write!(text, "_arg{index}: {kind}, ");
            }
            let _ = write!(text, "on: crate::abi::{kind}");
            return (text, format!("crate::error::Target::{variant}(on)"));
        }
        parameters.push(match kind {
            "int" | "MPI_Fint" | "MPI_T_cb_safety" => "c_int",
            _ => "usize",
        });
    }
    (String::new(), "crate::error::Target::None".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let functions = crate::parse(&format!("/* chapter: X */\n{text}")).unwrap();
        render(&functions, &BTreeSet::new())
    }

    #[test]
    fn a_stub_takes_its_parameters_up_to_the_object() {
        let text = rendered(
            "int MPI_Foo(const void *buf, int n, const int d[], MPI_Comm comm, int more);",
        );
        assert!(
            text.contains("export_name = \"MPI_Foo\"")
                && text.contains("export_name = \"PMPI_Foo\"")
        );
        assert!(
            text.contains(
                "(_arg0: usize, _arg1: c_int, _arg2: usize, on: crate::abi::MPI_Comm) -> c_int"
            ),
            "{text}"
        );
        assert!(
            text.contains("unsupported(\"MPI_Foo\", crate::error::Target::Comm(on))"),
            "{text}"
        );
    }

    #[test]
    fn a_stub_without_an_object_has_no_parameters() {
        let text = rendered("int MPI_Foo(MPI_Comm *comm);\nint MPI_T_foo(int a);");
        assert!(text.contains("unsupported(\"MPI_Foo\", crate::error::Target::None)"), "{text}");
        assert!(
            text.contains("fn plain() -> c_int { crate::abi::MPI_T_ERR_NOT_SUPPORTED }"),
            "{text}"
        );
    }

    #[test]
    fn what_is_defined_has_no_stub() {
        let functions =
            crate::parse("/* chapter: X */\nint MPI_A(void);\nint MPI_B(void);").unwrap();
        let text = render(&functions, &["MPI_A".to_owned()].into());
        assert!(!text.contains("MPI_A") && text.contains("MPI_B"));
    }
}
