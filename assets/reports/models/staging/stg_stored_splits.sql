select * from {{ source('lineage', 'stored_splits') }}
