select * from {{ source('lineage', 'edits') }}
