//! Why rows are missed that are missed, as far as it was found. Printed beside them; a row that is met says nothing.

/// Beginnings of the names of rows, and what was found.
const FOUND: &[(&str, &str)] = &[];

/// What is known of this row.
pub fn why(row: &str) -> &'static str {
    let known = FOUND.iter().find(|(beginning, _)| row.starts_with(beginning));
    known.map_or("the cause was not found", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::{FOUND, why};
    use crate::rows::ROWS;

    #[test]
    fn every_reason_is_some_rows_reason() {
        for (beginning, text) in FOUND {
            assert!(ROWS.iter().any(|row| why(row.name) == *text), "{beginning}");
        }
    }
}
