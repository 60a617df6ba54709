"""Operate a Slotkeeper stack: its slots, requests, retries and shared token."""
