select * from {{ source('lineage', 'limits') }}
