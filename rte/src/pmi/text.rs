//! Binary values in PMI-1's text: hexadecimal, and cut over several keys when a value is longer
//! than the process manager takes. The first piece tells how many there are.

/// `bytes` as lower-case hexadecimal.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of a hexadecimal text; `None` if it is not one.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    digits.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect()
}

/// The most pieces a value is cut into: bounds what a lookup will fetch on a peer's word.
pub const MAX_PIECES: usize = 4096;

/// The key of piece `index` of `key` as published by `rank`.
pub fn piece_key(rank: u32, key: &str, index: usize) -> String {
    match index {
        0 => format!("iw-{rank}-{key}"),
        _ => format!("iw-{rank}-{key}-{index}"),
    }
}

/// Cuts `value` into texts of at most `limit` bytes; the first is `COUNT:hex`. `None` when the
/// value would need more than [`MAX_PIECES`].
pub fn cut(value: &[u8], limit: usize) -> Option<Vec<String>> {
    // "4096:" before the first piece; hexadecimal pairs are never split.
    let room = limit.checked_sub(5).map(|room| room / 2).filter(|room| *room > 0)?;
    let mut pieces: Vec<String> = value.chunks(room).map(encode).collect();
    if pieces.is_empty() {
        pieces.push(String::new());
    }
    let count = pieces.len();
    pieces[0].insert_str(0, &format!("{count}:"));
    (count <= MAX_PIECES).then_some(pieces)
}

/// The number of pieces and the bytes of the first one; `None` if it is not a first piece.
pub fn first(piece: &str) -> Option<(usize, Vec<u8>)> {
    let (count, hex) = piece.split_once(':')?;
    let count = count.parse().ok().filter(|count| (1..=MAX_PIECES).contains(count))?;
    Some((count, decode(hex)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_hexadecimal_is_refused() {
        for text in ["0", "0g", "+1", "é0"] {
            assert_eq!(decode(text), None, "{text}");
        }
        for text in ["", "00", "x:00", "0:", "4097:", "1:0"] {
            assert_eq!(first(text), None, "{text}");
        }
        assert_eq!(cut(b"x", 5), None);
        assert_eq!(cut(&[0; 100_000], 7), None);
    }

    proptest! {
        #[test]
        fn any_value_comes_back(
            value in proptest::collection::vec(any::<u8>(), 0..2000),
            limit in 16usize..1100,
        ) {
            let pieces = cut(&value, limit).unwrap();
            prop_assert!(pieces.iter().all(|piece| piece.len() <= limit));
            let (count, mut bytes) = first(&pieces[0]).unwrap();
            prop_assert_eq!(count, pieces.len());
            for piece in &pieces[1..] {
                bytes.extend(decode(piece).unwrap());
            }
            prop_assert_eq!(bytes, value);
        }
    }
}
