//! Items as JSON: what is pushed and delivered are values.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::delivery::Delivery;
use super::queue::Queue;
use super::queue_status::DeadItem;
use crate::error::Error;

impl Queue {
    /// Adds a value as an item, in JSON. Otherwise it is as [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPayload`] if the value cannot be written as JSON: nothing is pushed. Otherwise the same as
    /// [`push`](Self::push).
    ///
    /// # Cancel safety
    ///
    /// The same as [`push`](Self::push).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn send(mail: &Mail) {}
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Mail {
    ///     to: String,
    /// }
    ///
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let mails = client.queue("mails");
    /// mails.push_json(&Mail { to: "kim".into() }).await?;
    ///
    /// let delivery = mails.pop().await?;
    /// match delivery.json::<Mail>() {
    ///     Ok(mail) => {
    ///         send(&mail).await;
    ///         delivery.ack().await?;
    ///     }
    ///     Err(_) => delivery.reject().await?, // it would fail each time: it is among the dead items now
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn push_json<T: Serialize + ?Sized>(&self, value: &T) -> Result<u64, Error> {
        let payload = serde_json::to_vec(value).map_err(|error| invalid(self.name(), &error))?;
        self.push(payload).await
    }
}

impl Delivery {
    /// Reads the payload as a value in JSON.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPayload`] if it is no JSON, or another value. The item stays lent. It will be so at each delivery:
    /// consider [`reject`](Self::reject).
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(self.payload()).map_err(|error| invalid(self.queue(), &error))
    }
}

impl DeadItem {
    /// Reads the payload as a value in JSON, as [`Delivery::json`] does.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPayload`] if it is no JSON, or another value. The item stays dead.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.payload).map_err(|error| invalid(&self.queue, &error))
    }
}

fn invalid(queue: &str, error: &serde_json::Error) -> Error {
    Error::InvalidPayload { queue: queue.into(), problem: Arc::from(error.to_string()) }
}
