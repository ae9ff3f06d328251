//! Which files hold secrets: by name, by what people set, and by what stands in them.

use super::shapes;
use crate::filter::PatternList;
use crate::path::WorkspacePath;

/// Names that hold secrets wherever they stand, as lines of an ignore file.
const NAMES: &str = "\
.env
.env.*
!.env.example
!.env.sample
!.env.template
!.env.dist
*.pem
*.key
*.p12
*.pfx
*.jks
*.kdbx
id_rsa
id_dsa
id_ecdsa
id_ed25519
.netrc
.pgpass
.git-credentials
.vault-token
credentials.json
";

/// Larger files are judged by name alone.
const CONTENT_MAX: usize = 64 << 10;

/// What becomes of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// It is kept as it is.
    Plain,
    /// It is kept sealed.
    Secret,
    /// It is never kept.
    Never,
}

/// The rules of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SecretRules {
    names: PatternList,
    encrypt: PatternList,
    never: PatternList,
    plain: PatternList,
}

impl SecretRules {
    /// The rules that always hold, and what people set, each a list of patterns.
    pub(crate) fn new(encrypt: &[String], never: &[String], plain: &[String]) -> Self {
        let list = |lines: &[String]| PatternList::new(lines.join("\n").as_bytes());
        Self {
            names: PatternList::new(NAMES.as_bytes()),
            encrypt: list(encrypt),
            never: list(never),
            plain: list(plain),
        }
    }

    /// What a path alone tells; `None` where the content decides.
    pub(crate) fn by_name(&self, path: &WorkspacePath) -> Option<Class> {
        // Paths under a further root are absolute; patterns are relative to their root.
        let bytes = path.as_bytes();
        let relative = bytes.strip_prefix(b"/").unwrap_or(bytes);
        let set = |list: &PatternList| !list.is_empty() && list.covers(relative, false);
        if set(&self.never) {
            Some(Class::Never)
        } else if set(&self.plain) {
            Some(Class::Plain)
        } else if set(&self.encrypt) || self.names.covers(path.name(), false) {
            Some(Class::Secret)
        } else {
            None
        }
    }

    /// What the content tells, where the name tells nothing.
    pub(crate) fn by_content(bytes: &[u8]) -> Class {
        match bytes.len() <= CONTENT_MAX && shapes::holds_secret(bytes) {
            true => Class::Secret,
            false => Class::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(encrypt: &str, never: &str, plain: &str) -> SecretRules {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        SecretRules::new(&list(encrypt), &list(never), &list(plain))
    }

    #[track_caller]
    fn check(rules: &SecretRules, paths: &str, expected: Option<Class>) {
        for path in paths.split_whitespace() {
            let path = WorkspacePath::new(path).unwrap();
            assert_eq!(rules.by_name(&path), expected, "{path}");
        }
    }

    #[test]
    fn well_known_names_are_secret_everywhere() {
        let rules = rules("", "", "");
        let secret = ".env a/.env .env.local a/b/.env.production id_rsa home/id_ed25519 tls/x.pem";
        check(&rules, secret, Some(Class::Secret));
        check(&rules, "/etc/ssl/server.key .netrc a/credentials.json", Some(Class::Secret));
        check(&rules, ".env.example a/.env.sample .env.template .env.dist", None);
        check(
            &rules,
            "env .environment id_rsa.pub src/key.rs keyboard.rs .envrc x.pem/notes",
            None,
        );
    }

    #[test]
    fn what_people_set_comes_first_and_never_before_all() {
        let rules =
            rules("*.secret conf/prod.toml", "vault/** *.nokeep", "fixtures/*.pem *.nokeep");
        check(&rules, "a.secret b/a.secret conf/prod.toml", Some(Class::Secret));
        check(&rules, "vault/a vault/b/.env x.nokeep", Some(Class::Never));
        check(&rules, "fixtures/a.pem", Some(Class::Plain));
        check(&rules, "fixtures/deep/a.pem", Some(Class::Secret));
        check(&rules, "conf/dev.toml main.rs", None);
    }

    #[test]
    fn large_content_is_not_searched() {
        let mut text = b"-----BEGIN PRIVATE KEY-----\nMIIE\n".to_vec();
        assert_eq!(SecretRules::by_content(&text), Class::Secret);
        text.resize(CONTENT_MAX + 1, b'\n');
        assert_eq!(SecretRules::by_content(&text), Class::Plain);
    }
}
