//! How to reach a database, and others of the same server: what people write for psql.

/// A connection, with the name of its database apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The database.
    pub(super) database: String,
    form: Form,
}

#[derive(Debug, PartialEq, Eq)]
enum Form {
    /// A URI: what comes before the database's name and after it.
    Uri(String, String),
    /// Words of the form `name=value`, without the database.
    Words(String),
}

impl Address {
    /// Reads a URI, words of the form `name=value`, or the bare name of a database.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let address = match (text.split_once("://"), text.contains('=')) {
            (Some((scheme, rest)), _) => of_uri(scheme, rest)?,
            (None, true) => of_words(text)?,
            (None, false) => Self { database: text.to_owned(), form: Form::Words(String::new()) },
        };
        (!address.database.is_empty()).then_some(address)
    }

    /// The same connection to another database.
    pub(super) fn of(&self, database: &str) -> String {
        match &self.form {
            Form::Uri(before, after) => format!("{before}/{}{after}", percent(database)),
            Form::Words(words) => {
                let value = database.replace('\\', "\\\\").replace('\'', "\\'");
                format!("{words} dbname='{value}'").trim_start().to_owned()
            }
        }
    }
}

fn of_uri(scheme: &str, rest: &str) -> Option<Address> {
    let (body, query) = match rest.find('?') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let (host, database) = body.split_once('/')?;
    let form = Form::Uri(format!("{scheme}://{host}"), query.to_owned());
    Some(Address { database: unpercent(database)?, form })
}

/// Takes the words apart as libpq does: values may be quoted, and a backslash takes the next as it is.
fn of_words(text: &str) -> Option<Address> {
    let (mut database, mut others) = (None, Vec::new());
    let mut left = text.trim_start();
    while !left.is_empty() {
        let (key, rest) = left.split_once('=')?;
        let (value, length) = value(rest.trim_start())?;
        let rest = &rest.trim_start()[length..];
        let key = key.trim();
        match key == "dbname" {
            true => database = Some(value),
            false => {
                let value = value.replace('\\', "\\\\").replace('\'', "\\'");
                others.push(format!("{key}='{value}'"));
            }
        }
        left = rest.trim_start();
    }
    Some(Address { database: database?, form: Form::Words(others.join(" ")) })
}

/// A value and how long it was as it was written.
fn value(text: &str) -> Option<(String, usize)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut letters = text.char_indices().skip(usize::from(quoted));
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\'' if quoted => return Some((value, at + 1)),
            letter if !quoted && letter.is_whitespace() => return Some((value, at)),
            '\\' => value.push(letters.next()?.1),
            letter => value.push(letter),
        }
    }
    (!quoted).then_some((value, text.len()))
}

fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one =
        |byte: u8| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

fn unpercent(text: &str) -> Option<String> {
    let (mut bytes, mut left) = (Vec::new(), text.as_bytes());
    while let Some((first, rest)) = left.split_first() {
        left = rest;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            left = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_for_psql_names_a_database_and_others_of_its_server() {
        let check = |text: &str, database: &str, other: &str| {
            let address = Address::parse(text).unwrap();
            assert_eq!(
                (&address.database[..], &address.of("b c")[..]),
                (database, other),
                "{text}"
            );
        };
        check("shop", "shop", "dbname='b c'");
        check("postgres://u:p@h:5/shop", "shop", "postgres://u:p@h:5/b%20c");
        check("postgresql:///s%20p?host=/run", "s p", "postgresql:///b%20c?host=/run");
        check("host=h dbname=shop user=u", "shop", "host='h' user='u' dbname='b c'");
        check(r"dbname = 'it\'s' host=/run", "it's", "host='/run' dbname='b c'");
        for none in ["", "postgres://host", "postgres://host/", "host=h", "dbname='x", "x=1 y"] {
            assert_eq!(Address::parse(none), None, "{none}");
        }
    }
}
