"""Who may hold what: eviction policies, shares of tenants, retention, admission, fairness.

Everything here is pure: it sees keys, owners, sizes, costs and the time that it is told, and
answers with decisions. It knows no engine and no bytes.
"""
