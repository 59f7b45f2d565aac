select * from {{ source('lineage', 'instructions') }}
