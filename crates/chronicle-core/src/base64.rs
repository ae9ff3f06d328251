//! Base64 with its usual alphabet and padding (RFC 4648); one value has one text.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes bytes as text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let word = part
            .iter()
            .enumerate()
            .fold(0, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= part.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Reads text back; `None` for anything that [`encode`] does not write.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| DIGITS.iter().position(|other| *other == digit);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for part in text.as_bytes().chunks(4) {
        let digits = part.iter().take_while(|digit| **digit != b'=').count();
        if part.len() != 4 || digits < 2 {
            return None;
        }
        let mut word = 0;
        for (at, digit) in part[..digits].iter().enumerate() {
            word |= u32::try_from(value(*digit)?).ok()? << (18 - 6 * at);
        }
        bytes.extend_from_slice(&word.to_be_bytes()[1..digits]);
    }
    (encode(&bytes) == text).then_some(bytes)
}

/// Reads text that stands for exactly so many bytes.
pub fn decode_fixed<const N: usize>(text: &str) -> Option<[u8; N]> {
    decode(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_there_and_back_and_nothing_else_is_read() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, text) in pairs {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(plain.as_bytes()));
        }
        let every: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&every)), Some(every));
        for odd in ["Zg", "Zg=", "Zh==", "Z===", "=Zg=", "Zm9v\n", "Zm9-", "Zg==Zg=="] {
            assert_eq!(decode(odd), None, "{odd}");
        }
        assert_eq!(decode_fixed::<2>("Zm8="), Some(*b"fo"));
        assert_eq!(decode_fixed::<3>("Zm8="), None);
    }
}
