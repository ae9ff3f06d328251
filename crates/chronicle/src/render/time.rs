//! Times for people: how long ago something was.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use chronicle_core::shown::span;

/// Seconds since 1970, now.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// `3 min ago`, from an RFC 3339 time; the text itself if it is not one.
pub(crate) fn ago(timestamp: &str, now: i64) -> String {
    match seconds(timestamp) {
        Some(then) => match now.saturating_sub(then) {
            past if past < 5 => "just now".to_owned(),
            past => format!("{} ago", span(past.unsigned_abs())),
        },
        None => timestamp.to_owned(),
    }
}

/// Seconds since 1970 of an RFC 3339 time.
fn seconds(text: &str) -> Option<i64> {
    let field = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    let clock = days(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second;
    Some(clock - offset(text.get(19..)?)?)
}

/// What the local clock is ahead of UTC, from the end of the text: `.123Z`, `+02:00`.
fn offset(rest: &str) -> Option<i64> {
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    Some(sign * (hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60))
}

/// Days from 1970-01-01 to a date, counted in years that begin in March, so that the leap day is
/// the last of its year.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let in_year = (153 * month + 2) / 5 + day - 1;
    Some(year * 365 + leap_days + in_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3339_is_read_with_fractions_and_offsets() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2000-02-29T12:00:00.123456789Z"), Some(951_825_600));
        assert_eq!(seconds("2000-02-29T14:00:00+02:00"), Some(951_825_600));
        assert_eq!(seconds("1969-12-31T23:59:59Z"), Some(-1));
        assert_eq!(seconds("yesterday"), None);
    }

    #[test]
    fn times_are_told_as_people_say_them() {
        assert_eq!(ago("1970-01-01T00:00:00Z", 2), "just now");
        assert_eq!(ago("1970-01-01T00:00:00Z", 30), "30 s ago");
        assert_eq!(ago("1970-01-01T00:00:00Z", 600), "10 min ago");
        assert_eq!(ago("1970-01-01T00:00:00Z", 7200), "2 h ago");
        assert_eq!(ago("1970-01-01T00:00:00Z", 864_000), "10 days ago");
        assert_eq!(ago("?", 1), "?");
    }
}
