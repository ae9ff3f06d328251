//! How values are written for people in files that are read again.

/// An object's name as hexadecimal.
pub mod hex_id {
    use chronicle_core::ObjectId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes it.
    pub fn serialize<S: Serializer>(id: &ObjectId, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&id.hex())
    }

    /// Reads it.
    pub fn deserialize<'d, D: Deserializer<'d>>(input: D) -> Result<ObjectId, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map_err(|()| D::Error::custom(format!("{text:?} is no hash")))
    }
}
